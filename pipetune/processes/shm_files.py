"""Loader workers say who they are, so that what a killed one leaves in /dev/shm can be told from anybody else's.

torch gives every batch of a worker a file ``/dev/shm/torch_PID_…`` and removes its name a few microseconds later. A
worker that is killed in between leaves the file, as large as a batch, until the machine is started again.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Collection
from pathlib import Path

#: In the environment of a child: the file descriptor to which workers write their numbers.
FD_VARIABLE = "PIPETUNE_WORKERS_FD"
_FILE = re.compile(r"torch_([0-9]+)_")
#: So long may a process take to end after SIGKILL (s).
_PATIENCE_S = 2.0


def announce_worker() -> None:
    """Called by a worker before it makes its first batch. Short writes to a pipe are not torn (pipe(7))."""
    fd = os.environ.get(FD_VARIABLE, "")
    if fd.isdecimal():
        with contextlib.suppress(OSError):
            os.write(int(fd), b"%d\n" % os.getpid())


def read_announced(fd: int) -> set[int]:
    """The numbers that were written so far; does not wait."""
    os.set_blocking(fd, False)
    text = b""
    with contextlib.suppress(BlockingIOError):
        while data := os.read(fd, 1 << 16):
            text += data
    return {int(number) for number in text.split()}


def remove_files_of(pids: Collection[int], shm: Path = Path("/dev/shm")) -> list[str]:
    """Remove what workers that have been killed left in /dev/shm; returns the names.

    Args:
        pids: of the workers. Those that do not end within two seconds keep their files.
        shm: where to look.
    """
    deadline = time.monotonic() + _PATIENCE_S
    while any(_exists(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.005)
    removed = []
    with contextlib.suppress(OSError):
        for name in os.listdir(shm):
            found = _FILE.match(name)
            if found and int(found[1]) in pids and not _exists(int(found[1])):
                with contextlib.suppress(OSError):
                    (shm / name).unlink()
                    removed.append(name)
    return removed


def remove_own_files(shm: Path = Path("/dev/shm")) -> None:
    """Remove what this worker has a name for there: torch leaves the file for which there was no room.

    To be called by a worker between two batches, when all the others have lost their names.
    """
    with contextlib.suppress(OSError):
        for name in os.listdir(shm):
            found = _FILE.match(name)
            if found and int(found[1]) == os.getpid():
                (shm / name).unlink()


def _exists(pid: int) -> bool:
    """It runs; one that only waits to be reaped cannot do anything any more."""
    try:
        return b") Z " not in Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
