"""Names that both sides of the socket know. Standard library only.

From the script: ``hello`` (each process), ``started``, ``torch``, ``loader``, ``iterated``, ``ready``, then of each
measurement ``phase``, ``first_batch``, ``steps``, ``result`` or ``failure``; ``checkpoint`` and ``complaint``. To it:
``measure``, ``stop`` and ``end``.
"""

from __future__ import annotations

from pathlib import Path

#: The folder that comes first on PYTHONPATH.
SITE = str(Path(__file__).resolve().parents[2] / "hook" / "site")
#: Environment variable, and the kinds of guests that it names: ``relay:FOLDER`` or ``tuned:FILE``.
VARIABLE = "PIPETUNE_HOOK"
RELAY, TUNED = "relay", "tuned"
#: Exit code of a process of the script whose connection was closed while it was measured: EX_IOERR of sysexits.h.
CLOSED = 74
#: Files in the folder of a relay.
SOCKET, SETTINGS_FILE = "socket", "settings.json"
