"""Temporary folders: one whose process was killed is removed by the next that makes one."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_PREFIX = "pipetune-"
#: In the names of this process's folders: a user may have a folder whose name begins with ``pipetune-``, too.
_TOKEN = secrets.token_hex(4)
#: Locked for as long as a process has the folder; the kernel gives the lock back when it dies.
_OWNER = ".owner"


@contextlib.contextmanager
def temporary_folder(kind: str) -> Iterator[Path]:
    """A new folder ``pipetune-TOKEN-KIND-…``, which is removed at the end of the block.

    Raises:
        OSError: none can be made.
    """
    remove_abandoned()
    with contextlib.ExitStack() as held:
        folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{_TOKEN}-{kind}-"))
        held.callback(remove, folder)
        with contextlib.suppress(OSError):  # a file system without locks
            held.enter_context(_owned(folder))
        yield folder


def prefix_of_folders() -> str:
    """The beginning of the paths of this process's temporary folders, also of those that are made later."""
    return os.path.join(os.path.realpath(tempfile.gettempdir()), f"{_PREFIX}{_TOKEN}-")


def remove(folder: str | Path) -> None:
    """Remove a folder with everything in it that can be removed; overlayfs leaves folders that nobody may enter."""
    for place, names, _ in os.walk(folder):
        for name in names:
            path = os.path.join(place, name)
            if os.path.islink(path):  # to a folder of the user's, by a script
                continue
            with contextlib.suppress(OSError):
                os.chmod(path, 0o700)
    shutil.rmtree(folder, ignore_errors=True)


def remove_abandoned() -> None:
    """Remove the folders of this user's processes that were killed. Never raises."""
    with contextlib.suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            if entry.name.startswith(_PREFIX):
                with contextlib.suppress(OSError):
                    _remove_if_abandoned(entry)


@contextlib.contextmanager
def _owned(folder: Path) -> Iterator[None]:
    # Locked before it has its name: without its owner's lock it is never seen.
    new = folder / f"{_OWNER}.new"
    fd = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        new.rename(folder / _OWNER)
        yield
    finally:
        os.close(fd)


def _remove_if_abandoned(entry: os.DirEntry[str]) -> None:
    if not entry.is_dir(follow_symlinks=False) or entry.stat(follow_symlinks=False).st_uid != os.geteuid():
        return
    fd = os.open(os.path.join(entry.path, _OWNER), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        remove(entry.path)
    finally:
        os.close(fd)
