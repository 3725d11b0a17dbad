"""Writes one shard after the other: images are packed by threads, and written in their order."""

from __future__ import annotations

import errno
import os
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

from pipetune.datasets.folder import MAX_FILE_BYTES
from pipetune.errors import PipetuneError
from pipetune.packing.formats.contract import Format, Sample
from pipetune.packing.layout import Split, positions_of
from pipetune.packing.manifest import PartHead, hash_of, write_part
from pipetune.packing.options import Pixels
from pipetune.packing.pixels import Packed, Rejected, pack_image
from pipetune.packing.sources import Location, Sources
from pipetune.records.pack import Entry, RejectedEntry

T = TypeVar("T")
R = TypeVar("R")
#: What is wrong with a file, and not with what it is on.
_OF_THE_FILE = (errno.ENOENT, errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL, errno.EISDIR)
#: Images under way for each thread: one that it works on, and some that wait for a slower one before them.
_UNDER_WAY = 4


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
    """An image that was read and packed, or why it was not."""

    position: int
    source_hash: str
    packed: Packed | None
    reason: str | None


def write_shard(pack: Pack, shard: int, done: Iterator[Done], on_image: Callable[[int], None]) -> None:
    """Write a shard and its part of the manifest.

    Args:
        done: its images, in their order.
        on_image: is told of each, with its bytes.

    Raises:
        OSError: the disk refuses; nothing of the shard is left.
        PipetuneError: an image cannot be read now, or the shard would be too large for its format.
    """
    began = time.monotonic()
    positions = pack.positions(shard)
    writer = pack.format.open(pack.folder, pack.format.shard_name(shard), len(positions))
    entries: list[Entry | RejectedEntry] = []
    try:
        for position in positions:
            one = next(done)
            assert one.position == position
            entries.append(_add(pack, writer.add, one))
            on_image(pack.sources.where(pack.split.order[position]).size)
        size = writer.finish()
        writer.publish()
    except BaseException:
        writer.abandon()
        raise
    head = PartHead(
        shard=shard, shards=pack.shards, first=positions.start, images=len(positions), bytes=size,
        seconds=time.monotonic() - began,
    )  # fmt: skip
    write_part(pack.folder, head, entries)


def _add(pack: Pack, add: Callable[[Sample], tuple[str, int, int]], one: Done) -> Entry | RejectedEntry:
    number = pack.split.order[one.position]
    name = pack.sources.name(number)
    if one.packed is None:
        return RejectedEntry(number=one.position, source=name, reason=one.reason or "")
    packed, label = one.packed, pack.labels[pack.sources.label(number)]
    assert label is not None
    key, ending = pack.sources.key(number), packed.ending
    if pack.format.keeps_names:
        key, ending = pack.sources.file_name(number, packed.ending)
    try:
        file, start, length = add(Sample(one.position, key, ending, label, packed.data))
    except ValueError as error:
        return RejectedEntry(number=one.position, source=name, reason=str(error))
    return Entry(
        number=one.position, key=key, source=name, source_bytes=pack.sources.where(number).size,
        source_hash=one.source_hash, file=file, start=start, length=length, hash=hash_of(packed.data),
        width=packed.width, height=packed.height, orientation=packed.orientation, label=label, done=packed.done,
    )  # fmt: skip


def packed_in_order(pack: Pack, positions: Iterable[int], threads: int) -> Generator[Done, None, None]:
    """Images of a pack, read and packed by threads; no more of them in memory than the threads need."""

    def work(position: int) -> Done:
        return pack_source(position, pack.sources.where(pack.split.order[position]), pack.pixels)

    return in_order(work, positions, threads)


def pack_source(position: int, place: Location, pixels: Pixels) -> Done:
    """Read an image and pack it."""
    digest = ""
    try:
        data = read_source(place)
        digest = hash_of(data)
        return Done(position, digest, pack_image(data, pixels), None)
    except Rejected as error:
        return Done(position, digest, None, str(error))
    except MemoryError as error:
        raise PipetuneError(
            f"not enough memory to pack {place.file!r}", hint="fewer --threads, and --resume"
        ) from error
    except OSError as error:
        if error.errno in _OF_THE_FILE:
            return Done(position, digest, None, error.strerror or str(error))
        # The image may be good, and the network or the disk is not.
        raise PipetuneError(
            f"cannot read {place.file!r}: {error.strerror or error}", hint="--resume goes on once it can be read"
        ) from error


def read_source(place: Location) -> bytes:
    """The bytes of an image.

    Raises:
        OSError: it cannot be read.
        Rejected: it is another one than when the list was made, or too large.
    """
    fd = os.open(place.file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if place.mtime_ns is not None:
            status = os.fstat(fd)
            if (status.st_size, status.st_mtime_ns) != (place.size, place.mtime_ns):
                raise Rejected("was changed while the data set was packed")
        if place.size > MAX_FILE_BYTES:
            raise Rejected(f"has {place.size:,} bytes, more than {MAX_FILE_BYTES >> 20} MiB")
        pieces, at = [], 0
        while at < place.size and (piece := os.pread(fd, place.size - at, place.start + at)):
            pieces.append(piece)
            at += len(piece)
        if at < place.size:
            raise Rejected("was cut off while the data set was packed")
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)
    finally:
        os.close(fd)


def in_order(work: Callable[[T], R], items: Iterable[T], threads: int) -> Generator[R, None, None]:
    """``map(work, items)`` by threads, with few results at a time."""
    if threads == 1:
        yield from map(work, items)
        return
    waiting: deque[Future[R]] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="pipetune-pack") as pool:
        try:
            for item in items:
                waiting.append(pool.submit(work, item))
                if len(waiting) >= _UNDER_WAY * threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
