"""One shard that is written: its images, its part of the manifest, and how it comes to the disk."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from pipetune.packing.formats.contract import Format, Sample
from pipetune.packing.layout import Split, positions_of
from pipetune.packing.manifest import PartHead, write_part
from pipetune.packing.options import Pixels
from pipetune.packing.pixels import Packed
from pipetune.packing.sources import Sources
from pipetune.records.pack import Entry, RejectedEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class Pack:
    """One pack, as it is laid out."""

    folder: Path
    format: Format
    sources: Sources
    split: Split
    labels: tuple[int | None, ...]
    """Of each class of the sources."""
    pixels: Pixels
    shards: int

    def positions(self, shard: int) -> range:
        """The places in the order that a shard has."""
        return positions_of(shard, self.shards, len(self.split.order))


class Done(NamedTuple):
    """An image that was read and packed."""

    position: int
    source_hash: str
    found: Mapping[int, Packed | str]
    """Number of a pack -> the image as it has it, or why it does not."""
    hashes: Mapping[int, str] = MappingProxyType({})
    """Number of a pack -> the hash of the image as it has it."""


class Shard:
    """A shard that is being written, and its part of the manifest."""

    def __init__(self, pack: Pack, number: int) -> None:
        self._pack, self._number, self._began = pack, number, time.monotonic()
        self._positions = pack.positions(number)
        self._entries: list[Entry | RejectedEntry] = []
        self._writer = pack.format.open(pack.folder, pack.format.shard_name(number), len(self._positions))

    def add(self, done: Done, found: Packed | str, digest: str) -> bool:
        """Take the next image; whether it was the last one."""
        assert done.position == self._positions[len(self._entries)]
        self._entries.append(_entry(self._pack, self._writer.add, done, found, digest))
        return len(self._entries) == len(self._positions)

    def end(self, since: float) -> float:
        """Bring it to the disk, give it its name, and write its part of the manifest.

        Args:
            since: when the shard before it was there, on the monotonic clock.

        Returns:
            when this one is.
        """
        try:
            size = self._writer.finish()
            self._writer.publish()
        except BaseException:
            self._writer.abandon()
            raise
        ended = time.monotonic()
        head = PartHead(
            shard=self._number, shards=self._pack.shards, first=self._positions.start, images=len(self._positions),
            bytes=size, seconds=ended - max(self._began, since),
        )  # fmt: skip
        write_part(self._pack.folder, head, self._entries)
        return ended

    def abandon(self) -> None:
        """Delete what was written."""
        self._writer.abandon()


def _entry(
    pack: Pack, add: Callable[[Sample], tuple[str, int, int]], done: Done, packed: Packed | str, digest: str
) -> Entry | RejectedEntry:
    number = pack.split.order[done.position]
    name = pack.sources.name(number)
    if isinstance(packed, str):
        return RejectedEntry(number=done.position, source=name, reason=packed)
    label = pack.labels[pack.sources.label(number)]
    assert label is not None
    key, ending = pack.sources.key(number), packed.ending
    if pack.format.keeps_names:
        key, ending = pack.sources.file_name(number, packed.ending)
    try:
        file, start, length = add(Sample(done.position, key, ending, label, packed.data))
    except ValueError as error:
        return RejectedEntry(number=done.position, source=name, reason=str(error))
    return Entry(
        number=done.position, key=key, source=name, source_bytes=pack.sources.where(number).size,
        source_hash=done.source_hash, file=file, start=start, length=length, hash=digest,
        width=packed.width, height=packed.height, orientation=packed.orientation, label=label, done=packed.done,
    )  # fmt: skip


class Ends:
    """Brings full shards to the disk in a thread of its own: packing goes on while the disk is waited for."""

    def __init__(self, packs: int) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="pipetune-disk")
        self._under_way: deque[Future[None]] = deque()
        self._most = packs
        self._ended: dict[int, float] = {}

    def take(self, pack: int, shard: Shard) -> None:
        """Bring a shard to the disk. Waits for earlier ones where many wait: what is not there is in memory.

        Raises:
            OSError: the disk refuses an earlier one.
        """
        self._under_way.append(self._pool.submit(self._end, pack, shard))
        while self._under_way and (len(self._under_way) > 1 + self._most or self._under_way[0].done()):
            self._under_way.popleft().result()

    def wait(self) -> None:
        """Until all are there.

        Raises:
            OSError: the disk refuses one.
        """
        while self._under_way:
            self._under_way.popleft().result()

    def close(self) -> None:
        """Wait for those that have been taken: they are full, and stay."""
        self._pool.shutdown()

    def _end(self, pack: int, shard: Shard) -> None:
        # Two shards of a pack are under way at the same time: no second counts for both.
        self._ended[pack] = shard.end(since=self._ended.get(pack, 0.0))
