"""An image in a shard, and how a shard is opened: what the readers of all formats share."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from pipetune.datasets.folder import MAX_FILE_BYTES
from pipetune.datasets.index import MAX_SKIPPED_KEPT


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
    label: str | None
    """Of its own; ``None``: it has none."""
    pixels: tuple[int, int] | None = None
    """Width and height (px) of what is stored as pixels; ``None``: it is an encoded image, with a header."""
    folder: str = ""
    """The first one in its name: its label where no image of the data set has one of its own."""


class Problems:
    """What cannot be used, and why: all of it is counted, the first of it kept, as somebody may have made it up."""

    def __init__(self) -> None:
        self.kept: list[tuple[str, str]] = []
        """(place, reason)."""
        self.count = 0

    def add(self, place: str, reason: str) -> None:
        """Another one."""
        self.count += 1
        if len(self.kept) < MAX_SKIPPED_KEPT:
            self.kept.append((place, reason))


class Found(NamedTuple):
    """What a shard holds. What stands before damage counts: a shard may be cut off."""

    members: list[Member]
    problems: Problems
    labelled: bool
    """Some image has a label of its own, or was meant to."""


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


#: ``scan(fd, size, members, problems)`` adds what a shard holds; a ValueError says where it is damaged.
Scan = Callable[[int, int, list[Member], Problems], None]


def scanned(shard: str, scan: Scan) -> Found:
    """The images of a shard, by a format's own scan."""
    members: list[Member] = []
    problems = Problems()
    try:
        fd, size = open_shard(shard)
        try:
            scan(fd, size, members, problems)
        finally:
            os.close(fd)
    except OSError as error:
        problems.add(shard, error.strerror or str(error))
    except ValueError as error:
        problems.add(shard, f"damaged after {len(members)} images: {error}" if members else str(error))
    return Found(members, problems, any(member.label is not None for member in members))


def too_large(size: int) -> str | None:
    """Why an image of so many bytes is not used; ``None``: it is."""
    return f"has {size:,} bytes, more than {MAX_FILE_BYTES >> 20} MiB" if size > MAX_FILE_BYTES else None
