"""The images that are to be packed, in the order of their folders: names, sizes and labels, and little memory for each.

Why not the index of a sweep: it opens each file for its header, and an object per image would take 1 GB for a million.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol

from pipetune.datasets.folder import audit_folder
from pipetune.datasets.folder_walk import Progress, find_images
from pipetune.datasets.index import ImageSet
from pipetune.datasets.other_kinds import find_other_kind
from pipetune.errors import UsageError
from pipetune.packing.names import Names
from pipetune.records.audit import Audit


class Sources(Protocol):
    """Images with labels."""

    root: str
    """Absolute path of the folder, or of the shards."""
    classes: tuple[str, ...]
    """Class names in the order of their labels."""
    problems: list[tuple[str, str]]
    """(path, reason) of what was found and cannot be used; the first of it."""
    problem_count: int
    """All of it."""
    audit: Audit | None
    """The account of what was found."""

    def __len__(self) -> int: ...

    def label(self, number: int) -> int:
        """Of an image."""

    def name(self, number: int) -> str:
        """Of an image: its path below the root."""

    def where(self, number: int) -> Location:
        """Where its bytes are."""

    def key(self, number: int) -> str:
        """A name that no other image has, without ending: ``CLASS/STEM``."""

    def file_name(self, number: int, ending: str) -> tuple[str, str]:
        """Name and ending of its file in a folder of classes, where it is stored with this ending."""


#: Of a name in a shard, so many characters become a part of the new one.
_LONGEST_STEM = 100


@dataclass(frozen=True, slots=True)
class Location:
    """Where an image's bytes are, as they were when the list was made."""

    file: str
    start: int
    size: int
    """Bytes."""
    mtime_ns: int | None
    """``None``: of the shard that it is in, which is not looked at for each image."""


class FolderSources:
    """A folder with a folder for each class."""

    def __init__(self, root: str, report: Progress) -> None:
        self.root = os.path.abspath(root)
        prefix = self._prefix = self.root.rstrip("/") + "/"
        # As for a training: a class that vanishes would give the others other numbers.
        found = find_images(
            self.root, report, strict=True, keep=lambda paths: Names(path.removeprefix(prefix) for path in paths)
        )
        self.classes: tuple[str, ...] = tuple(found.classes)
        self.problems, self.problem_count = list(found.skipped), found.skipped_count
        self.audit: Audit | None = audit_folder(found, self.root)
        self._names = found.paths
        self._ends = array("q")
        for names in self._names:
            self._ends.append(len(names) + (self._ends[-1] if self._ends else 0))
        self._sizes, self._times = array("q"), array("q")
        self._shared, self._taken = _ambiguous(self._names)
        if not len(self):
            raise UsageError(
                f"no images in {self.root!r}",
                hint=find_other_kind(self.root) or "name a folder with a folder for each class",
            )
        for number in range(len(self)):
            try:
                status = os.stat(self._prefix + self.name(number))
                size, mtime_ns = status.st_size, status.st_mtime_ns
            except OSError:
                size, mtime_ns = 0, 0  # told when it is read
            self._sizes.append(size)
            self._times.append(mtime_ns)
            if number % 1024 == 0:
                report("reading sizes", number, len(self))
        report("reading sizes", len(self), len(self))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def label(self, number: int) -> int:
        """See :class:`Sources`."""
        return bisect(self._ends, number)

    def name(self, number: int) -> str:
        """See :class:`Sources`."""
        label = self.label(number)
        return self._names[label][number - (self._ends[label - 1] if label else 0)]

    def where(self, number: int) -> Location:
        """See :class:`Sources`."""
        return Location(self._prefix + self.name(number), 0, self._sizes[number], self._times[number])

    def key(self, number: int) -> str:
        """See :class:`Sources`.

        WebDataset ends a name at the first dot of its base name, so dots are escaped; the ending stays where another
        image has the same name otherwise.
        """
        folder, base = os.path.split(self.name(number))
        stem, ending = os.path.splitext(base)
        key = escaped(stem) + (f"%3A{escaped(ending[1:])}" if number in self._shared else "")
        folder = "".join(_written(character) if ord(character) < 0x20 else character for character in folder)
        return f"{folder}/{key}" if folder else key

    def file_name(self, number: int, ending: str) -> tuple[str, str]:
        """See :class:`Sources`: its own, with another ending behind it where it gets one."""
        name = self.name(number)
        stem, own = os.path.splitext(name)
        if own.lower().lstrip(".") in (ending, {"jpg": "jpeg"}.get(ending, ending)):
            return stem, own.lstrip(".")
        return (f"{name}%3A" if number in self._taken else name), ending


def _ambiguous(classes: Sequence[Sequence[str]]) -> tuple[set[int], set[int]]:
    """Images whose names without endings others have, too; and those whose names with ``.jpg`` behind them do."""
    shared: set[int] = set()
    taken: set[int] = set()
    number = 0
    for names in classes:
        # Files of one folder stand together.
        for _, group in groupby(names, key=os.path.dirname):
            files = list(group)
            stems = Counter(os.path.splitext(name)[0] for name in files)
            if len(stems) < len(files):
                shared.update(
                    number + place for place, name in enumerate(files) if stems[os.path.splitext(name)[0]] > 1
                )
            there = set(files) if len({os.path.splitext(name)[1] for name in files}) > 1 else set()
            taken.update(number + place for place, name in enumerate(files) if f"{name}.jpg" in there)
            number += len(files)
    return shared, taken


class IndexedSources:
    """Images in the shards of an index."""

    def __init__(self, images: ImageSet) -> None:
        self.root, self.classes = images.root, images.classes
        self.problems, self.problem_count = list(images.skipped), images.skipped_count
        self.audit = images.audit
        self._images = images.images
        self._prefix = self.root.rstrip("/") + "/"
        width = max(map(len, self.classes), default=1)
        # Numbers sort as text, too, so that a folder has the same labels.
        self._folders = [escaped(name.zfill(width) if name.isdecimal() else name) for name in self.classes]

    def __len__(self) -> int:
        return len(self._images)

    def label(self, number: int) -> int:
        """See :class:`Sources`."""
        return self._images[number].label

    def name(self, number: int) -> str:
        """See :class:`Sources`: the shard's, and its own in the shard."""
        return self._images[number].path.removeprefix(self._prefix)

    def where(self, number: int) -> Location:
        """See :class:`Sources`."""
        image = self._images[number]
        return Location(image.file, image.start, image.size_bytes, None)

    def key(self, number: int) -> str:
        """See :class:`Sources`. Shards may have the same names in them, so each image is numbered."""
        image = self._images[number]
        stem = os.path.splitext(os.path.basename(image.path))[0]
        return f"{self._folders[image.label]}/{number:08d}-{escaped(stem[:_LONGEST_STEM])}"

    def file_name(self, number: int, ending: str) -> tuple[str, str]:
        """See :class:`Sources`."""
        return self.key(number), ending


def escaped(name: str) -> str:
    """A name without what formats stumble over: dots, slashes, control characters, and ``%`` itself, as ``%2E``."""
    found = "".join(_written(character) for character in name) or "%00"
    return f"%5F{found[1:]}" if found.startswith("__") else found  # WebDataset keeps such names for itself


def _written(character: str) -> str:
    return f"%{ord(character):02X}" if character in "%./\\" or ord(character) < 0x20 else character
