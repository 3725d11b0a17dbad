"""Shared-memory files of loader workers: which processes may have left one in /dev/shm, and their removal.

torch gives every batch of a worker a file ``/dev/shm/torch_PID_…`` and removes its name a few microseconds later. A
worker that is killed in between leaves the file, as large as a batch, until the machine is started again. Workers
announce their PIDs, so that nobody else's files are removed.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Collection
from pathlib import Path

#: Environment variable of a child that holds the file descriptor to which its workers write their PIDs.
FD_VARIABLE = "PIPETUNE_WORKERS_FD"
_FILE = re.compile(r"torch_([0-9]+)_")
#: How long a process may take to end after SIGKILL (s).
_END_TIMEOUT_S = 2.0


def announce_worker() -> None:
    """Write the PID of this worker to its parent; to be called before the first batch.

    Several workers may write at once: short writes to a pipe are atomic (pipe(7)).
    """
    fd = os.environ.get(FD_VARIABLE, "")
    if fd.isdecimal():
        with contextlib.suppress(OSError):
            os.write(int(fd), b"%d\n" % os.getpid())


def read_announced(fd: int) -> set[int]:
    """PIDs that workers have written so far; does not wait."""
    os.set_blocking(fd, False)
    text = b""
    with contextlib.suppress(BlockingIOError):
        while data := os.read(fd, 1 << 16):
            text += data
    return {int(number) for number in text.split()}


def remove_files_of(pids: Collection[int], shm: Path = Path("/dev/shm")) -> list[str]:
    """Remove the shared-memory files of workers that have been killed.

    Args:
        pids: the workers. Those that do not end within two seconds keep their files.
        shm: the shared-memory file system.

    Returns:
        The names of the removed files.
    """
    deadline = time.monotonic() + _END_TIMEOUT_S
    while any(_runs(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.005)
    removed = []
    with contextlib.suppress(OSError):
        for name in os.listdir(shm):
            found = _FILE.match(name)
            if found and int(found[1]) in pids and not _runs(int(found[1])):
                with contextlib.suppress(OSError):
                    (shm / name).unlink()
                    removed.append(name)
    return removed


def remove_own_files(shm: Path = Path("/dev/shm")) -> None:
    """Remove this worker's own files: torch leaves the file for which there was no room.

    To be called by a worker between two batches, when its files for finished batches have no names any more.
    """
    with contextlib.suppress(OSError):
        for name in os.listdir(shm):
            found = _FILE.match(name)
            if found and int(found[1]) == os.getpid():
                (shm / name).unlink()


def _runs(pid: int) -> bool:
    """Whether a process can still use its files; one that only waits to be reaped cannot."""
    import psutil

    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
