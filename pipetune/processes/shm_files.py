"""Shared-memory files of loader workers: which processes may have left one in /dev/shm, and their removal.

torch gives every batch of a worker a file ``/dev/shm/torch_PID_…`` and removes its name a few microseconds later. A
worker that is killed in between leaves the file, as large as a batch, until the machine is started again.

Containers may share /dev/shm (``docker run --ipc=host``) and number their processes on their own, so a PID alone does
not say whose a file is. Workers announce their PIDs and when they began: a file is theirs if this user owns it and it
was written since.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections.abc import Mapping
from pathlib import Path

#: Environment variable of a child that holds the file descriptor to which its workers write their PIDs.
FD_VARIABLE = "PIPETUNE_WORKERS_FD"
_FILE = re.compile(r"torch_([0-9]+)_")
_ANNOUNCED = re.compile(rb"^([0-9]{1,20}) ([0-9]{1,20})$", re.MULTILINE)
#: How long a process may take to end after SIGKILL (s).
_END_TIMEOUT_S = 2.0
#: By how much a file's time may be behind ``time.time_ns()``: the kernel takes that of its last tick.
_CLOCK_LAG_NS = 50_000_000


def announce_worker() -> None:
    """Write the PID of this worker and the time to its parent; to be called before the first batch.

    Several workers may write at once: short writes to a pipe are atomic (pipe(7)).
    """
    fd = os.environ.get(FD_VARIABLE, "")
    if fd.isdecimal():
        with contextlib.suppress(OSError):
            os.write(int(fd), b"%d %d\n" % (os.getpid(), time.time_ns()))


def read_announced(fd: int, text: bytes = b"") -> dict[int, int]:
    """Workers that have announced themselves: PID -> when it began (ns since the epoch); does not wait.

    Args:
        fd: of the pipe.
        text: what was read of it already. Announcements are short, so they were read as a whole.
    """
    os.set_blocking(fd, False)
    with contextlib.suppress(BlockingIOError):
        while data := os.read(fd, 1 << 16):
            text += data
    began: dict[int, int] = {}
    for pid, time_ns in _ANNOUNCED.findall(text):
        began.setdefault(int(pid), int(time_ns))  # the earliest of two with the same number
    return began


def remove_files_of(workers: Mapping[int, int], shm: Path = Path("/dev/shm")) -> list[str]:
    """Remove the shared-memory files of workers that have been killed.

    Args:
        workers: PID -> when it began (ns since the epoch). Those that do not end within two seconds keep their files.
        shm: the shared-memory file system.

    Returns:
        The names of the removed files.
    """
    deadline = time.monotonic() + _END_TIMEOUT_S
    while any(_runs(pid) for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.005)
    return [
        name for name, pid in _files(shm)
        if pid in workers and not _runs(pid) and _removed(shm / name, workers[pid])
    ]  # fmt: skip


def remove_own_files(since_ns: int, shm: Path = Path("/dev/shm")) -> None:
    """Remove this worker's own files: torch leaves the file for which there was no room.

    To be called by a worker between two batches, when its files for finished batches have no names any more.

    Args:
        since_ns: when it began to make the batch (ns since the epoch).
    """
    for name, pid in _files(shm):
        if pid == os.getpid():
            _removed(shm / name, since_ns)


def _files(shm: Path) -> list[tuple[str, int]]:
    """Names of torch's files, and the PIDs in them."""
    with contextlib.suppress(OSError):
        return [(name, int(found[1])) for name in os.listdir(shm) if (found := _FILE.match(name))]
    return []


def _removed(path: Path, since_ns: int) -> bool:
    """Remove a file, unless it is another user's or from before this time; whether it was removed."""
    with contextlib.suppress(OSError):
        found = path.lstat()
        written = found.st_mtime_ns >= since_ns - _CLOCK_LAG_NS
        if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and written:
            path.unlink()
            return True
    return False


def _runs(pid: int) -> bool:
    """Whether a process can still use its files; one that only waits to be reaped cannot."""
    import psutil

    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
