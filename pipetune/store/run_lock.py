"""The file ``lock`` of a run folder: ``pipetune PID``, held by the process that writes there.

A folder that the user names may hold a file with this name that is another program's. Nothing is written into a lock
before it was seen to be pipetune's: empty and beside a run, or with the line above, or with a number alone, as version
0.1 wrote it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from pathlib import Path

from pipetune.errors import UsageError
from pipetune.store.files import LOCK_FILE, OWN_FILE, os_errors_as
from pipetune.store.lock import LockedError, held_elsewhere, try_lock

_MARK = "pipetune"
_OWN = re.compile(rb"pipetune ([0-9]+)\n")
_OF_A_RUN = re.compile(rb"(?:pipetune )?[0-9]*\n?")
_MOST_BYTES = 64


def acquire(folder: Path, hint: str) -> int | None:
    """Lock a folder that is pipetune's and write this process's ID into the lock; made where it is missing.

    Returns:
        The open file, which holds the lock until it is closed; ``None`` on a file system without locks.

    Raises:
        UsageError: another process has locked it, or the file is not a lock.
        PipetuneError: the disk refuses.
    """
    target = folder / LOCK_FILE
    made = not os.path.lexists(target)
    with os_errors_as("lock", target), contextlib.ExitStack() as undo:
        try:
            fd, held = try_lock(target, mode=OWN_FILE)
        except LockedError as error:
            raise in_use(folder, error.holder, hint) from None
        undo.callback(os.close, fd)
        if not held:
            return None
        if not stat.S_ISREG(os.fstat(fd).st_mode) or not _OF_A_RUN.fullmatch(os.pread(fd, _MOST_BYTES, 0)):
            raise UsageError(f"{target} is not pipetune's", hint="name another folder with --out DIR")
        try:
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{_MARK} {os.getpid()}\n".encode(), 0)
        except OSError:  # a full disk; an empty lock would keep the folder from being taken for a new one
            if made:
                os.unlink(target)
            raise
        undo.pop_all()
        return fd


def in_use(folder: Path, holder: str, hint: str) -> UsageError:
    """The error where another process works in a folder.

    Args:
        holder: what that process wrote into the lock.
    """
    return UsageError(
        f"{folder} is in use by process {holder.removeprefix(_MARK).strip() or '(ID unknown)'}", hint=hint
    )


def is_own(target: Path) -> bool:
    """Whether pipetune made this lock. It is looked at and not changed, whatever it is.

    Raises:
        OSError: it cannot be read.
    """
    content = _content(target)
    return content is not None and _OWN.fullmatch(content) is not None


def holder_of(target: Path) -> str | None:
    """What the process wrote that holds this lock of pipetune's; ``None``: nobody does. Nothing is changed.

    Raises:
        OSError: it cannot be read.
    """
    content = _content(target)
    if content is None or not _OF_A_RUN.fullmatch(content) or not held_elsewhere(target):
        return None
    return content.decode("ascii").strip()


def _content(target: Path) -> bytes | None:
    """The beginning of a regular file; ``None``: it is none."""
    try:
        fd = os.open(target, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a link, a socket
            return None
        raise
    try:
        return os.pread(fd, _MOST_BYTES, 0) if stat.S_ISREG(os.fstat(fd).st_mode) else None
    finally:
        os.close(fd)
