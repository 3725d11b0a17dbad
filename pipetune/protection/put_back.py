"""Puts back what a journal has kept. May be interrupted at any point, and be done again.

Each file is put back by a rename, which happens as a whole or not at all, and nothing of what is kept is removed before
its path has it. A copy that finds no room stays, and its place is said.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from pipetune.protection.copy_file import copy_content, copy_file, have_same_content, separate_name, set_attributes
from pipetune.protection.journal import Entry, read_entries
from pipetune.protection.keeper import PIN
from pipetune.protection.state import COPIES, JOURNAL
from pipetune.protection.upper import lstat

#: Ending of a name under which a folder or link is kept that the script made where a file of the user's belongs.
ASIDE = ".written-by-script"
#: Errors where a folder may not be changed, or something is mounted over a file, which itself may be written to.
_ONLY_IN_PLACE = frozenset({errno.EACCES, errno.EPERM, errno.EBUSY, errno.EROFS})


class PutBack(NamedTuple):
    """What came of it, in sentences."""

    failures: Mapping[str, str]
    """Path -> why it could not be put back, and the place of the copy; none: all is as before, but for what others
    changed."""
    notes: tuple[str, ...]


def put_back(folder: Path, kept: Path, ended_ns: int | None = None) -> PutBack:
    """Give each path that the journal has what it had at the start; what is new stays.

    A file that was changed after the script had ended is somebody else's work and stays; its first version goes to
    ``kept``. What stands in a file that no process of the script has asked to change may be the user's own work: it
    goes to ``kept``, too, before the file is put back.

    Args:
        folder: has the journal and the copies. Nothing writes to it, or to the paths, meanwhile.
        kept: folder for what has no place any more. It is made where it is needed.
        ended_ns: when the last process of the script had ended for certain (ns since 1970); ``None``: just now.
    """
    copies = folder / COPIES
    journal = read_entries(folder / JOURNAL)
    entries = first_entries(journal)
    later = paths_changed_later(entries, copies, ended_ns)
    # By another name, such a file may be one of the entries that are put back in place.
    later_inodes = {(entry.device, entry.inode) for entry in entries if entry.path in later}
    asked = _Asked(journal)
    failures: dict[str, str] = {}
    notes: list[str] = []
    set_aside = 0
    for entry in entries:  # folders come before what is in them
        try:
            if entry.path in later:
                notes += _keep_first_version(entry, copies, kept)
                continue
            if entry.kind == "prepared" and not asked.has(entry):
                set_aside += _set_aside(entry, copies, kept)
            _restore(entry, copies, in_place=(entry.device, entry.inode) not in later_inodes)
        except OSError as error:
            where = "" if entry.copy is None else f"; its first version is in {copies / entry.copy}"
            failures[entry.path] = f"{entry.path} could not be put back ({error.strerror or error}){where}"
    for entry in reversed(entries):
        if stat.S_ISDIR(entry.mode):  # what was put into it has changed its times
            with contextlib.suppress(OSError):
                _set_attributes(entry.path, entry)
    if set_aside:
        files = "1 file of yours was" if set_aside == 1 else f"{set_aside:,} files of yours were"
        notes.append(
            f"{files} changed by something other than the script's Python, perhaps by you, and put back; what was "
            f"written is in {kept}"
        )
    return PutBack(failures, tuple(notes))


def paths_changed_later(entries: Iterable[Entry], copies: Path, ended_ns: int | None) -> set[str]:
    """Paths that were changed after the script had ended; arguments as of :func:`put_back`."""
    if ended_ns is None:
        return set()
    return {
        entry.path
        for entry in entries
        if not stat.S_ISDIR(entry.mode)
        and (state := lstat(entry.path)) is not None
        and state.st_ctime_ns > ended_ns
        and not is_as_before(entry, copies)
    }


class _Asked:
    """What processes of the script have asked to change, by any of its names."""

    def __init__(self, journal: Sequence[Entry]) -> None:
        self._paths = {entry.path for entry in journal if entry.kind == "asked"}
        self._inodes = {(entry.device, entry.inode) for entry in journal if entry.path in self._paths and entry.copy}

    def has(self, entry: Entry) -> bool:
        return entry.path in self._paths or (entry.device, entry.inode) in self._inodes


def first_entries(entries: Sequence[Entry]) -> list[Entry]:
    """The entries of paths that existed, one each, sorted by path; a copy counts before mere attributes."""
    by_path: dict[str, Entry] = {}
    for entry in entries:
        if entry.kind in ("created", "asked"):
            continue
        present = by_path.get(entry.path)
        if present is None or (present.kind == "attributes" and entry.kind != "attributes"):
            by_path[entry.path] = entry
    return [by_path[path] for path in sorted(by_path, key=lambda path: path.split("/"))]


def is_as_before(entry: Entry, copies: Path) -> bool:
    """Whether a path has the content, the mode and the time of change that it had."""
    try:
        state = os.lstat(entry.path)
    except OSError:
        return False
    if state.st_mode != entry.mode or (stat.S_ISREG(state.st_mode) and state.st_mtime_ns != entry.mtime_ns):
        return False
    if entry.copy is None or stat.S_ISDIR(state.st_mode):
        return True
    copy = _existing_copy(copies / entry.copy)
    if copy is None:
        return True
    if stat.S_ISLNK(state.st_mode):
        return os.readlink(copy) == os.readlink(entry.path)
    return os.path.samestat(os.lstat(copy), state) or have_same_content(copy, entry.path)


def separate_names(folder: Path, created: Sequence[str]) -> dict[str, str]:
    """Give new files content of their own where they are further names of files that existed before.

    A script that renames a file of the user's leaves such a name: later changes of one would change the other.

    Args:
        folder: see :func:`put_back`, which has ended.
        created: absolute paths.

    Returns:
        Path -> why that was not possible, in a sentence.
    """
    doubtful = {path: state for path in created if (state := _regular_state(path)) is not None and state.st_nlink > 1}
    if not doubtful:
        return {}
    states = (_regular_state(entry.path) for entry in first_entries(read_entries(folder / JOURNAL)))
    restored = {(state.st_dev, state.st_ino) for state in states if state is not None}
    failures = {}
    for path in doubtful:
        state = os.lstat(path)
        if state.st_nlink == 1 or (state.st_dev, state.st_ino) not in restored:
            continue
        try:
            separate_name(path)
        except OSError as error:
            reason = f"it is a hard link to a file of yours, which could not be copied: {error.strerror}"
            failures[path] = f"{path} changes a file of yours when it is changed ({reason})"
    return failures


def _regular_state(path: str) -> os.stat_result | None:
    try:
        state = os.lstat(path)
    except OSError:
        return None
    return state if stat.S_ISREG(state.st_mode) else None


def _keep_first_version(entry: Entry, copies: Path, kept: Path) -> tuple[str, ...]:
    """Move what is kept of a path that somebody else has changed since; returns what there is to say."""
    copy = None if entry.copy is None else _existing_copy(copies / entry.copy)
    if copy is None:
        return ()
    target = _new_place(entry.path, kept)
    if entry.links > 1:  # its other names may need it, too
        copy_file(copy, target)
    else:
        os.rename(copy, target)
    return (f"{entry.path} was changed after the script had ended, and stays; its first version is in {target}",)


def _set_aside(entry: Entry, copies: Path, kept: Path) -> bool:
    """Move what stands in a path away, if it differs from what is kept; returns whether it did."""
    state = lstat(entry.path)
    copy = None if entry.copy is None else _existing_copy(copies / entry.copy)
    if state is None or copy is None or stat.S_ISDIR(state.st_mode):
        return False
    if is_as_before(entry, copies) or (stat.S_ISREG(state.st_mode) and have_same_content(copy, entry.path)):
        return False
    target = _new_place(entry.path, kept)
    if state.st_nlink == 1:
        with contextlib.suppress(OSError):  # another file system
            os.rename(entry.path, target)
            return True
    copy_file(entry.path, target)
    return True


def _new_place(path: str, kept: Path) -> str:
    target = kept / path.lstrip("/")
    os.makedirs(target.parent, mode=0o700, exist_ok=True)
    return str(target) if lstat(str(target)) is None else f"{target}-{secrets.token_hex(4)}"


def _restore(entry: Entry, copies: Path, *, in_place: bool) -> None:
    if stat.S_ISDIR(entry.mode):
        if entry.kind == "removed":
            _make_folder(entry.path)
        with contextlib.suppress(FileNotFoundError):  # until it is filled
            _set_attributes(entry.path, replace(entry, mode=entry.mode | stat.S_IRWXU))
        return
    if entry.copy is None:
        with contextlib.suppress(FileNotFoundError):
            _set_attributes(entry.path, entry)
        return
    copy = _existing_copy(copies / entry.copy)
    if copy is None:  # it is in its place already
        return
    if stat.S_ISREG(entry.mode) and not copy.endswith(PIN) and os.lstat(copy).st_size != entry.size:
        raise OSError(errno.EIO, "its copy is not whole")  # after a power cut
    if is_as_before(entry, copies):
        if entry.links <= 1:
            os.unlink(copy)
    elif entry.links > 1 and not _is_original(copy, entry):
        pin = f"{copies / entry.copy}{PIN}"
        if in_place and os.path.lexists(pin) and stat.S_ISREG(entry.mode):
            _restore_one_of_several(entry, copy, pin)
        else:
            _place_copy(copy, entry.path)
    else:
        _place(copy, entry.path)
    _set_attributes(entry.path, entry)


def _existing_copy(copy: Path) -> str | None:
    for name in (str(copy), f"{copy}{PIN}"):
        if os.path.lexists(name):
            return name
    return None


def _is_original(copy: str, entry: Entry) -> bool:
    state = os.lstat(copy)
    return (state.st_dev, state.st_ino) == (entry.device, entry.inode)


def _make_folder(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            _put_aside(path)
    os.makedirs(path, exist_ok=True)


def _restore_one_of_several(entry: Entry, copy: str, pin: str) -> None:
    """A file that had several names gets its content in place, so that all of them have it."""
    if copy != pin:
        _write_content(copy, pin)
    with contextlib.suppress(OSError):
        if os.path.samefile(entry.path, pin):
            return
    unfinished = _unfinished_name(entry.path)
    try:
        os.link(pin, unfinished, follow_symlinks=False)
    except OSError:
        _place_copy(copy, entry.path)
        return
    _replace(unfinished, entry.path)


def _write_content(copy: str, target: str) -> None:
    if have_same_content(copy, target):
        return
    source_fd = os.open(copy, os.O_RDONLY | os.O_CLOEXEC)
    try:
        target_fd = os.open(target, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            copy_content(source_fd, target_fd)
        finally:
            os.close(target_fd)
    finally:
        os.close(source_fd)


def _place(copy: str, path: str) -> None:
    """Move what is kept to its path, whatever is there."""
    with contextlib.suppress(OSError):
        if os.path.samestat(os.lstat(copy), os.lstat(path)):  # a rename would leave both names
            os.unlink(copy)
            return
    try:
        _replace(copy, path)
    except OSError:
        _place_copy(copy, path)
        os.unlink(copy)


def _place_copy(copy: str, path: str) -> None:
    """Put a copy of what is kept to its path: from another file system, or where only the file may be written."""
    unfinished = _unfinished_name(path)
    try:
        copy_file(copy, unfinished)
        _replace(unfinished, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(unfinished)
        if error.errno not in _ONLY_IN_PLACE:
            raise
        _write_content(copy, path)


def _replace(source: str, path: str) -> None:
    """Rename over whatever stands there; a folder is put aside."""
    parent = os.path.dirname(path)
    if not os.path.isdir(parent):
        _make_folder(parent)
    try:
        os.rename(source, path)
    except IsADirectoryError:
        _put_aside(path)
        os.rename(source, path)


def _put_aside(path: str) -> None:
    target = f"{path}{ASIDE}"
    while os.path.lexists(target):
        target = f"{path}{ASIDE}-{secrets.token_hex(4)}"
    os.rename(path, target)


def _unfinished_name(path: str) -> str:
    return os.path.join(os.path.dirname(path), f".pipetune-{secrets.token_hex(8)}.tmp")


def _set_attributes(path: str, entry: Entry) -> None:
    set_attributes(path, entry.mode, entry.uid, entry.gid, (entry.atime_ns, entry.mtime_ns))
