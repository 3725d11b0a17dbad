"""An image in a shard, and how a shard is opened: what the readers of all formats share."""

from __future__ import annotations

import errno
import os
import stat
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from pipetune.datasets.index import MAX_SKIPPED_KEPT
from pipetune.datasets.usable_image import MAX_FILE_BYTES


@dataclass(frozen=True, slots=True)
class Member:
    """An image in a shard."""

    shard: str
    """Absolute path."""
    name: str
    """Its name in the shard, or its number."""
    start: int
    """First byte."""
    size: int
    """Bytes."""
    label: int | str | None
    """Of its own: the number or the name of a class; ``None``: it has none."""
    pixels: tuple[int, int] | None = None
    """Width and height (px) of what is stored as pixels; ``None``: it is an encoded image, with a header."""
    folder: str = ""
    """The folders in its name, such as ``train/cat``: one is its label where no image of the data set has its own."""


class Tally:
    """Counts of a shard, or of all shards; what is not used is named with the reason.

    All of it is counted and the first of it kept, because somebody may have made the shard up.
    """

    def __init__(self) -> None:
        self.kept: list[tuple[str, str]] = []
        """(place, reason) of what is not used."""
        self.count = 0
        """All of what ``kept`` has the first of."""
        self.members = 0
        """Members that are no labels."""
        self.rejected = 0
        """Images among them that are not used."""
        self.other: Counter[str] = Counter()
        """Members that are no images: kind -> how many."""
        self.labels = 0
        """Labels of images' own."""
        self.unmatched = 0
        """Labels among them without an image, or that are no class."""
        self.links = 0
        self.dotted = 0
        self.damaged = 0
        """Shards with damage, and shards that are not there."""
        self.unread_columns: set[str] = set()
        """Names of columns that are neither images nor labels."""

    def reject(self, place: str, reason: str) -> None:
        """Name an image that is not used."""
        self.rejected += 1
        self._keep(place, reason)

    def report_label(self, place: str, reason: str) -> None:
        """Name a label that no image has."""
        self.unmatched += 1
        self._keep(place, reason)

    def report_damage(self, shard: str, reason: str) -> None:
        """Name a shard that cannot be read from some place on."""
        self.damaged += 1
        self._keep(shard, reason)

    def report_unused(self, shard: str, reason: str) -> None:
        """Name a shard that is no part of the data set."""
        self._keep(shard, reason)

    def add(self, part: Tally) -> None:
        """Count what another one has counted."""
        self.kept += part.kept[: MAX_SKIPPED_KEPT - len(self.kept)]
        self.other.update(part.other)
        self.unread_columns |= part.unread_columns
        for name in ("count", "members", "rejected", "labels", "unmatched", "links", "dotted", "damaged"):
            setattr(self, name, getattr(self, name) + getattr(part, name))

    def _keep(self, place: str, reason: str) -> None:
        self.count += 1
        if len(self.kept) < MAX_SKIPPED_KEPT:
            self.kept.append((place, reason))


class Found(NamedTuple):
    """What a shard holds. What stands before damage counts: a shard may be cut off."""

    members: list[Member]
    tally: Tally

    @property
    def labelled(self) -> bool:
        """Some image has a label of its own, or was meant to."""
        return self.tally.labels > 0


def open_shard(path: str) -> tuple[int, int]:
    """``(descriptor, bytes)`` of a shard.

    Raises:
        OSError: it cannot be opened, or is no regular file: to open a named pipe would wait for its writer.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file")
    return fd, status.st_size


#: ``scan(fd, size, members, tally)`` adds what a shard holds; a ValueError says where it is damaged.
Scan = Callable[[int, int, list[Member], Tally], None]


def scanned(shard: str, scan: Scan) -> Found:
    """The images of a shard, by a format's own scan."""
    members: list[Member] = []
    tally = Tally()
    try:
        fd, size = open_shard(shard)
        try:
            scan(fd, size, members, tally)
        finally:
            os.close(fd)
    except OSError as error:
        tally.report_damage(shard, error.strerror or str(error))
    except ValueError as error:
        tally.report_damage(shard, describe_damage(len(members), str(error)))
    return Found(members, tally)


def describe_damage(images: int, reason: str) -> str:
    """The reason, and how many images stand before the damage."""
    return f"damaged after {images:,} {'image' if images == 1 else 'images'}: {reason}" if images else reason


def too_large(size: int) -> str | None:
    """Why an image of so many bytes is not used; ``None``: it is."""
    return f"has {size:,} bytes, more than {MAX_FILE_BYTES >> 20} MiB" if size > MAX_FILE_BYTES else None
