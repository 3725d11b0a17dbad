"""Locks between processes: an flock on a file of its own, which the kernel gives back when its holder dies.

The file stays where it is: removing it would race with a process that has just opened it. A file system without locks
is worked on without one, because refusing to work there would help nobody.

Why not the process ID in the file's name: IDs are reused, and mean nothing in another container or on another host.
Why not filelock: it does not name the holder, and it raises where the file system refuses locks (ENOLCK, EOPNOTSUPP).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

#: What flock returns on a file system without locks, e.g. a network mount that was set up so.
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)
_POLL_S = 0.1


class LockedError(BlockingIOError):
    """Another process holds a lock; ``holder`` is what it wrote into the file, e.g. its process ID."""

    def __init__(self, code: int, message: str, holder: str) -> None:
        super().__init__(code, message)
        self.holder = holder


def try_lock(target: Path, *, mode: int = 0o666) -> tuple[int, bool]:
    """Lock a file, which is made where it is missing, without waiting.

    Args:
        target: the file.
        mode: its permissions where it is made, of which the process's umask takes some.

    Returns:
        The open file, which holds the lock until it is closed, and whether it does: ``False`` on a file system without
        locks.

    Raises:
        LockedError: another process holds the lock.
        OSError: the file cannot be opened, or is a link, which may lead to somebody's file.
    """
    fd = os.open(target, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, mode)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(fd, 20, 0).decode("ascii", "replace").strip()
        os.close(fd)
        raise LockedError(errno.EAGAIN, "another process holds the lock", holder) from None
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return fd, False
        os.close(fd)
        raise
    return fd, True


def held_elsewhere(target: Path) -> bool:
    """Whether another process holds the lock of a file that exists. The file is not written to.

    Raises:
        OSError: it cannot be opened.
    """
    fd = os.open(target, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    finally:
        os.close(fd)
    return False


@contextlib.contextmanager
def locked(target: Path, waiting: Callable[[float], None]) -> Iterator[bool]:
    """Hold a lock, after waiting for it where another process holds it.

    Args:
        target: the file to lock.
        waiting: called with the time waited so far (s), 0 at first and then ten times a second.

    Returns:
        Whether the lock is held, ``False`` on a file system without locks.

    Raises:
        OSError: the file cannot be opened.
    """
    began_s: float | None = None
    while True:
        try:
            fd, alone = try_lock(target)
            break
        except LockedError:
            now_s = time.monotonic()
            began_s = now_s if began_s is None else began_s
            waiting(now_s - began_s)
            time.sleep(_POLL_S)
    try:
        yield alone
    finally:
        os.close(fd)
