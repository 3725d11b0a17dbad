"""What is kept before each call that changes files: one function for each kind of call.

Paths are absolute and without links in their folders; the last part has been followed where the call follows it.
Each raises ``OSError`` where something cannot be kept: then the call must not happen. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import stat

from pipetune.protection.keeper import Keeper

#: Flags of an ``open`` that may make or change a file.
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_RENAME_NOREPLACE = 1


def before_open(keeper: Keeper, path: str, flags: int) -> None:
    """Before ``open(2)``."""
    writes = flags & os.O_ACCMODE != os.O_RDONLY
    if flags & os.O_PATH or flags & os.O_TMPFILE == os.O_TMPFILE:
        return
    if os.path.lexists(path):
        if flags & os.O_EXCL and flags & os.O_CREAT:
            return  # it will fail
        if (writes or flags & os.O_TRUNC) and os.access(path, os.W_OK):
            with _VanishedMeanwhile():
                keeper.keep_content(path, truncated=bool(flags & os.O_TRUNC))
    elif flags & os.O_CREAT:
        keeper.note_created(path)


def before_truncate(keeper: Keeper, path: str) -> None:
    """Before ``truncate(2)``."""
    if os.access(path, os.W_OK):
        with _VanishedMeanwhile():
            keeper.keep_content(path)


def before_rename(keeper: Keeper, old: str, new: str, flags: int = 0) -> None:
    """Before ``rename(2)``."""
    if not os.path.lexists(old) or (flags & _RENAME_NOREPLACE and os.path.lexists(new)):
        return
    with contextlib.suppress(OSError):
        if os.path.samestat(os.lstat(old), os.lstat(new)):
            return  # nothing will happen
    with _VanishedMeanwhile():
        keeper.keep_name(old)
        if os.path.lexists(new):
            keeper.keep_name(new)
        else:
            keeper.note_created(new)


def before_remove(keeper: Keeper, path: str) -> None:
    """Before ``unlink(2)``."""
    with _VanishedMeanwhile():
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            keeper.keep_name(path)


def before_rmdir(keeper: Keeper, path: str) -> None:
    """Before ``rmdir(2)``."""
    with contextlib.suppress(OSError):
        if os.path.islink(path) or os.listdir(path):
            return  # it will fail
    with _VanishedMeanwhile():
        keeper.keep_name(path)


def before_link(keeper: Keeper, old: str, new: str) -> None:
    """Before ``link(2)``: the file may be written to by its new name from now on."""
    if os.path.lexists(new):
        return
    with _VanishedMeanwhile():
        keeper.keep_name(old)
        keeper.note_created(new)


def before_making(keeper: Keeper, path: str) -> None:
    """Before ``mkdir(2)``, ``symlink(2)`` and ``mknod(2)``."""
    keeper.note_created(path)


def before_attributes(keeper: Keeper, path: str) -> None:
    """Before the mode, owner or times of a file change."""
    keeper.keep_attributes(path)


class _VanishedMeanwhile(contextlib.suppress):
    """Somebody else has removed the file between two looks at it: the call will say so itself."""

    def __init__(self) -> None:
        super().__init__(FileNotFoundError, NotADirectoryError)
