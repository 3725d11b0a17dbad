"""Reads what a script has written into the upper layer of an overlay.

See https://docs.kernel.org/filesystems/overlayfs.html: a character device 0/0 is a whiteout (the lower entry was
removed), a folder with the attribute ``opaque`` hides what the lower one has, and one with ``redirect`` shows the
contents of a lower folder with another name (it was renamed). Standard library only.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field

from pipetune.protection.foreign_folders import MODE_ATTRIBUTE

#: Files that were copied up and look unchanged are compared byte by byte up to this size.
MAX_COMPARED_BYTES = 1 << 30
_PIECE_BYTES = 1 << 20


@dataclass(slots=True)
class UpperContents:
    """What the upper layers hold, in real paths."""

    created: dict[str, str] = field(default_factory=dict)
    """Real path of what did not exist before -> where it is stored. Folders come before what is in them."""
    changed: set[str] = field(default_factory=set)
    removed: set[str] = field(default_factory=set)
    contested: dict[str, str] = field(default_factory=dict)
    """Real path of a file that another program made or changed meanwhile -> where the script's own is stored."""
    renamed_folders: dict[str, str] = field(default_factory=dict)
    """New path of a folder that existed before -> its path."""


def read_upper(upper: str, lower: str, attributes: str, began_ns: int, contents: UpperContents) -> None:
    """Add what one upper layer holds.

    Args:
        upper: its folder.
        lower: the real folder that it lies over, as it is without the layer.
        attributes: begin of the names of overlayfs's extended attributes: ``trusted.overlay.`` or ``user.overlay.``.
        began_ns: when the script could first write (ns since 1970).
    """
    _Reader(lower, attributes, began_ns, contents).read(upper, lower, hides_lower=False)


class _Reader:
    def __init__(self, root: str, attributes: str, began_ns: int, contents: UpperContents) -> None:
        self._root, self._attributes, self._began_ns, self._contents = root, attributes, began_ns, contents

    def read(self, upper: str, real: str, *, hides_lower: bool) -> None:
        """One folder of the layer.

        Args:
            real: the same folder without the layer; it may not exist.
            hides_lower: what the real folder has is not seen through the layer.
        """
        # What is there instead may be a link to another folder, whose files are none of this one's.
        is_folder = not os.path.islink(real) and os.path.isdir(real)
        os.chmod(upper, stat.S_IMODE(os.lstat(upper).st_mode) | stat.S_IRWXU)
        with os.scandir(upper) as entries:
            stored = sorted(entries, key=lambda entry: entry.name)
        if hides_lower and is_folder:
            names = {entry.name for entry in stored}
            for name in _names_in(real):
                if name not in names:
                    self._contents.removed.update(files_below(os.path.join(real, name)))
        for entry in stored:
            path = os.path.join(real, entry.name)
            self._read_entry(entry, path, lstat(path) if is_folder else None, hides_lower=hides_lower)

    def _read_entry(
        self, entry: os.DirEntry[str], real: str, before: os.stat_result | None, *, hides_lower: bool
    ) -> None:
        state = entry.stat(follow_symlinks=False)
        if stat.S_ISCHR(state.st_mode) and state.st_rdev == 0:
            if before is not None:
                self._contents.removed.update(files_below(real))
        elif stat.S_ISDIR(state.st_mode):
            self._read_folder(entry.path, real, state, before, hides_lower=hides_lower)
        elif not (stat.S_ISREG(state.st_mode) or stat.S_ISLNK(state.st_mode)):
            return  # a socket or a pipe of processes that have ended
        elif before is None:
            self._contents.created[real] = entry.path
        elif before.st_ctime_ns > self._began_ns and stat.S_ISREG(before.st_mode):
            self._contents.contested[real] = entry.path
        elif not is_unchanged(entry.path, state, real, before):
            self._contents.changed.add(real)
            if stat.S_ISDIR(before.st_mode):
                self._contents.removed.update(files_below(real))

    def _read_folder(
        self, upper: str, real: str, state: os.stat_result, before: os.stat_result | None, *, hides_lower: bool
    ) -> None:
        opaque = _attribute(upper, self._attributes + "opaque") == b"y"
        redirect = _attribute(upper, self._attributes + "redirect")
        if redirect is not None:
            former = os.fsdecode(redirect)
            base = self._root if former.startswith("/") else os.path.dirname(real)
            self._contents.renamed_folders[real] = os.path.normpath(os.path.join(base, former.lstrip("/")))
        if before is None:
            self._contents.created[real] = upper
        elif not stat.S_ISDIR(before.st_mode):
            self._contents.changed.add(real)
        else:
            prepared = _attribute(upper, MODE_ATTRIBUTE)
            mode = stat.S_IMODE(before.st_mode) if prepared is None else int(prepared)
            if mode != stat.S_IMODE(state.st_mode):
                self._contents.changed.add(real)
        self.read(upper, real, hides_lower=hides_lower or opaque or redirect is not None)


def _attribute(path: str, name: str) -> bytes | None:
    try:
        return os.getxattr(path, name, follow_symlinks=False)
    except OSError:
        return None


def lstat(path: str) -> os.stat_result | None:
    """The state of an entry itself; ``None``: it does not exist."""
    try:
        return os.lstat(path)
    except OSError:
        return None


def is_unchanged(stored: str, state: os.stat_result, real: str, before: os.stat_result) -> bool:
    """Whether a file or link in the layer is what it was: opened for writing, and not written."""
    if state.st_mode != before.st_mode or state.st_size != before.st_size or state.st_mtime_ns != before.st_mtime_ns:
        return False
    if stat.S_ISLNK(state.st_mode):
        return os.readlink(stored) == os.readlink(real)
    return state.st_size > MAX_COMPARED_BYTES or _have_same_bytes(stored, real)


def _have_same_bytes(stored: str, real: str) -> bool:
    # filecmp remembers its answers by times and sizes, which are the same here.
    with open(stored, "rb") as one, open(real, "rb") as other:
        while True:
            piece = one.read(_PIECE_BYTES)
            if piece != other.read(_PIECE_BYTES):
                return False
            if not piece:
                return True


def files_below(path: str) -> Iterator[str]:
    """A file itself; all files in a folder; a folder without files itself."""
    if os.path.islink(path) or not os.path.isdir(path):
        yield path
        return
    empty = True
    for folder, folders, names in os.walk(path):
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        for name in (*names, *links):
            empty = False
            yield os.path.join(folder, name)
    if empty:
        yield path


def _names_in(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
