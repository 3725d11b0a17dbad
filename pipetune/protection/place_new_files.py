"""Moves new files from where a layer stores them to the paths under which the script made them.

A move never replaces anything: what is there by then stays. Standard library only.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from pipetune.protection.copy_file import copy_file
from pipetune.protection.upper import lstat

#: Errors of a hard link where a copy may work: another file system, one without links, or a rule of the kernel's.
_NO_LINK = frozenset({errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EACCES, errno.EMLINK, errno.ENOSYS})
#: Errors of a place that does not take the file, however often that is tried.
_NO_PLACE = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG})


class Placed(NamedTuple):
    """What came of moving files, in sentences."""

    notes: tuple[str, ...]
    """Files that are elsewhere than the script made them, for good."""
    failures: tuple[str, ...]
    """Files that are still where they are stored; none: all are moved."""


def place_new_files(created: Mapping[str, str], kept: Path) -> Placed:
    """Move what a script has made to its place.

    Args:
        created: path -> where it is stored; folders before what is in them.
        kept: folder for what has no place, because something else is there by now. It is made where it is needed.
    """
    notes: list[str] = []
    failures: list[str] = []
    for path, stored in created.items():
        try:
            _place(stored, path)
        except (FileExistsError, NotADirectoryError):
            note, is_kept = _keep(path, stored, kept)
            text = f"{path} could not be moved to its place, because something else is there; {note}"
            (notes if is_kept else failures).append(text)
        except OSError as error:
            if error.errno in _NO_PLACE:
                note, is_kept = _keep(path, stored, kept)
                text = f"{path} could not be moved to its place ({error.strerror}); {note}"
                (notes if is_kept else failures).append(text)
                continue
            failures.append(
                f"{path} could not be moved to its place ({error.strerror}); it is in {stored}, and the next command "
                "that opens the run folder tries again"
            )
    _copy_folder_times(created)
    return Placed(tuple(notes), tuple(failures))


def keep_contested(contested: Mapping[str, str], kept: Path) -> Placed:
    """Keep what a script wrote to files that another program has made or changed meanwhile; arguments and result as of
    :func:`place_new_files`.
    """
    notes: list[str] = []
    failures: list[str] = []
    for path, stored in contested.items():
        note, is_kept = _keep(path, stored, kept)
        text = f"{path} was written by another program meanwhile, too, and stays as that left it; {note}"
        (notes if is_kept else failures).append(text)
    return Placed(tuple(notes), tuple(failures))


def _keep(path: str, stored: str, kept: Path) -> tuple[str, bool]:
    elsewhere = kept / path.lstrip("/")
    try:
        os.makedirs(elsewhere.parent, mode=0o700, exist_ok=True)
        _place(stored, str(elsewhere))
    except OSError as error:
        return f"what the script wrote there stays in {stored} ({error.strerror})", False
    return f"what the script wrote there is in {elsewhere}", True


def _place(stored: str, path: str) -> None:
    state = lstat(stored)
    if state is None:  # moved already
        return
    parent = os.path.dirname(path)
    if os.path.realpath(parent) != parent:  # a link is there, where the script has made a folder
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), parent)
    if stat.S_ISDIR(state.st_mode):
        before = lstat(path)
        if before is None:
            os.mkdir(path)
            os.chmod(path, stat.S_IMODE(state.st_mode) | stat.S_IRWXU)  # until it is filled
            _copy_owner(path, state)
        elif not stat.S_ISDIR(before.st_mode):
            raise FileExistsError(errno.EEXIST, "File exists", path)
        return
    try:
        os.link(stored, path, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
        _copy(stored, path)
    os.unlink(stored)


def _copy(stored: str, path: str) -> None:
    unfinished = os.path.join(os.path.dirname(path), f".pipetune-{secrets.token_hex(8)}.tmp")
    try:
        copy_file(stored, unfinished)
        try:
            os.link(unfinished, path)  # unlike a rename, it replaces nothing
        except OSError as error:
            if error.errno not in _NO_LINK:
                raise
            if os.path.lexists(path):
                raise FileExistsError(errno.EEXIST, "File exists", path) from None
            os.rename(unfinished, path)
            return
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(unfinished)


def _copy_owner(path: str, state: os.stat_result) -> None:
    with contextlib.suppress(OSError):
        os.chown(path, state.st_uid, state.st_gid, follow_symlinks=False)


def _copy_folder_times(created: Mapping[str, str]) -> None:
    for path, stored in reversed(list(created.items())):
        if os.path.isdir(stored) and not os.path.islink(stored) and os.path.realpath(path) == path:
            with contextlib.suppress(OSError):
                shutil.copystat(stored, path)
