"""What a writer of a format is given, and what it offers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol


class Sample(NamedTuple):
    """An image as it is written."""

    number: int
    """Of the sample in the whole pack, from 0 on; those that are rejected leave gaps."""
    key: str
    """Its name in the pack, which no other has: ``CLASS/STEM``."""
    ending: str
    """``jpg``, ``png`` or ``webp``; ``raw``: pixels."""
    label: int
    data: bytes
    """The encoded image, a whole file; or pixels."""


class Place(NamedTuple):
    """Where an image's bytes are."""

    file: str
    """Relative to the folder of the pack."""
    start: int
    length: int


class ShardWriter(Protocol):
    """Writes one shard from its first sample to its last. Nothing has its final name before it is published."""

    def add(self, sample: Sample) -> Place:
        """Write a sample.

        Raises:
            OSError: the disk refuses.
            ValueError: the format cannot hold it; nothing was written of it.
        """

    def finish(self) -> int:
        """Write what comes after the last sample, and bring all to the disk; returns the shard's bytes."""

    def publish(self) -> None:
        """Give it its final name."""

    def abandon(self) -> None:
        """Delete what was written."""


def read_plain(folder: Path, file: str, start: int, length: int) -> bytes:
    """Bytes that lie together.

    Raises:
        OSError: they cannot be read.
    """
    with (folder / file).open("rb") as opened:
        return os.pread(opened.fileno(), length, start)


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One format."""

    name: str
    shard_name: Callable[[int], str]
    """Number of a shard -> its file's name."""
    open: Callable[[Path, str, int], ShardWriter]
    """(folder of the pack, name of the shard, number of samples that may come) -> its writer."""
    write_index: Callable[[Path, Iterable[ShardRows], Sequence[str]], None] = lambda folder, shards, classes: None
    """(folder, shards, classes): write the files that belong to all shards together, each whole or not at all."""
    read: Callable[[Path, str, int, int], bytes] = read_plain
    """(folder, file, start, length) -> an image's bytes."""
    keeps_names: bool = False
    """Each image has its own file, under its own name."""
    holds_pixels: bool = False
    """It holds pixels of one size, and no encoded images."""
    per_sample_bytes: float = 0.0
    """What a sample takes besides the image's bytes."""
    largest_shard: int = 1 << 62
    """Bytes that a shard may have."""
    require: Callable[[], object] = lambda: None
    """Raises MissingPackageError where a package that it needs is not there."""


class Row(NamedTuple):
    """A sample of a finished shard."""

    number: int
    key: str
    label: int
    start: int
    """First byte of the image in the shard."""
    length: int


class ShardRows(NamedTuple):
    """A finished shard as its index needs it."""

    name: str
    rows: Sequence[Row]
    size: int
    """Bytes of the file."""
