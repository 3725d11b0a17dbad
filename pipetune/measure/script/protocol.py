"""Names that both sides of the socket know. Standard library only.

From the script: ``hello`` (each process), ``started``, ``torch``, ``loader``, ``iterated``, ``ready``, then of each
measurement ``phase``, ``first_batch``, ``steps``, ``epoch`` (it ends, or another begins), ``result`` or ``failure``,
and ``resting`` (the loop waits); ``untrained``, ``checkpoint``, ``lost_worker`` and ``complaint``. To it: ``measure``,
``stop`` and ``end``.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

#: The folder that comes first on PYTHONPATH.
SITE = str(Path(__file__).resolve().parents[2] / "hook" / "site")
#: Environment variable, and the kinds of guests that it names: ``relay:FOLDER`` or ``tuned:FILE``.
VARIABLE = "PIPETUNE_HOOK"
RELAY, TUNED = "relay", "tuned"
#: Environment variable that is set where nothing keeps the user's files as they are: a script that saves is ended then.
REFUSE_SAVES = "PIPETUNE_REFUSE_SAVES"
#: Exit code of a process of the script whose connection was closed while it was measured: EX_IOERR of sysexits.h.
CLOSED = 74
#: So many batches without any optimizer step, in a row and with gradients computed after each, show a training, too.
WITHOUT_OPTIMIZER = 64
#: Key in the settings of a start: what is measured from the loader's first batch on.
FROM_START = "measure"
#: Files in the folder of a relay.
SOCKET, SETTINGS_FILE = "socket", "settings.json"
#: Longest path of a socket is 107 bytes (unix(7)).
_LONGEST = 100


@contextlib.contextmanager
def path_of_socket(folder: str) -> Iterator[str]:
    """A path to the socket in a relay's folder that is short enough, however deep the folder is; while it is needed.

    Raises:
        OSError: there is no such folder.
    """
    path = os.path.join(folder, SOCKET)
    if len(os.fsencode(path)) <= _LONGEST:
        yield path
        return
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET}"
    finally:
        os.close(descriptor)
