"""Writes one shard after the other: images are packed by threads, and written in their order."""

from __future__ import annotations

import contextlib
import errno
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from typing import NamedTuple, TypeVar

from pipetune.datasets.usable_image import MAX_FILE_BYTES
from pipetune.errors import PipetuneError
from pipetune.packing.manifest import hash_of
from pipetune.packing.options import Pixels
from pipetune.packing.pixels import Packed, Rejected, pack_images
from pipetune.packing.shard import Done, Ends, Pack, Shard
from pipetune.packing.sources import Location

T = TypeVar("T")
R = TypeVar("R")
#: What is wrong with a file, and not with what it is on.
_OF_THE_FILE = (errno.ENOENT, errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL, errno.EISDIR)
#: Images under way for each thread: one that it works on, and some that wait for a slower one before them.
_UNDER_WAY = 4


class Wanted(NamedTuple):
    """Images that lie together in the order, and who lacks them."""

    positions: range
    packs: tuple[int, ...]
    """Their numbers."""


def wanted(packs: Sequence[Pack], missing: Sequence[Sequence[int]]) -> list[Wanted]:
    """What has to be read, in its order.

    Args:
        packs: of the same images in the same order.
        missing: the shards that each pack lacks.
    """
    ranges = [
        (pack.positions(shard), number)
        for number, (pack, shards) in enumerate(zip(packs, missing, strict=True))
        for shard in shards
    ]
    edges = sorted({edge for positions, _ in ranges for edge in (positions.start, positions.stop)})
    # Sorted by their beginnings, those that have begun and have not ended are a few at a time.
    ranges.sort(key=lambda one: one[0].start)
    found, under_way, at = [], [], 0
    for start, stop in pairwise(edges):
        while at < len(ranges) and ranges[at][0].start <= start:
            under_way.append(ranges[at])
            at += 1
        under_way = [one for one in under_way if one[0].stop > start]
        if under_way:
            found.append(Wanted(range(start, stop), tuple(sorted(number for _, number in under_way))))
    return found


def write_shards(
    packs: Sequence[Pack], missing: Sequence[Sequence[int]], threads: int, on_image: Callable[[int], None]
) -> None:
    """Write the shards that packs of the same images lack; each image is read once.

    Args:
        missing: the shards that each pack lacks.
        on_image: is told of each image, with its bytes.

    Raises:
        OSError: the disk refuses; nothing of the shards that are not finished is left.
        PipetuneError: an image cannot be read now, or a shard would be too large for its format.
    """
    lacking = wanted(packs, missing)
    pending = [iter(sorted(shards)) for shards in missing]
    opened: dict[int, Shard] = {}
    with contextlib.closing(packed_in_order(packs, lacking, threads)) as ready:
        ends = Ends(len(packs))
        try:
            for done in ready:
                for number in done.found:
                    if number not in opened:
                        opened[number] = Shard(packs[number], next(pending[number]))
                    if opened[number].add(done, done.found[number], done.hashes.get(number, "")):
                        ends.take(number, opened.pop(number))
                on_image(packs[0].sources.where(packs[0].split.order[done.position]).size)
            ends.wait()
        finally:
            ends.close()
            for shard in opened.values():
                shard.abandon()


def packed_in_order(packs: Sequence[Pack], lacking: Iterable[Wanted], threads: int) -> Generator[Done, None, None]:
    """Images, read and packed by threads; no more of them in memory than the threads need."""
    sources, order = packs[0].sources, packs[0].split.order

    def work(one: tuple[int, tuple[int, ...]]) -> Done:
        position, numbers = one
        return pack_source(position, sources.where(order[position]), {n: packs[n].pixels for n in numbers})

    return in_order(work, ((position, one.packs) for one in lacking for position in one.positions), threads)


def pack_source(position: int, place: Location, pixels: Mapping[int, Pixels]) -> Done:
    """Read an image and pack it.

    Args:
        pixels: number of each pack that lacks it -> what it does to images.
    """
    digest = ""
    try:
        data = read_source(place)
        digest = hash_of(data)
        found = pack_images(data, list(pixels.values()))
    except Rejected as error:
        return Done(position, digest, dict.fromkeys(pixels, str(error)))
    except MemoryError as error:
        raise no_memory(place) from error
    except OSError as error:
        # One file that is gone is left out. Where its folder cannot be listed either, the storage has gone, or the
        # right to read it; and a shard has many images.
        if error.errno in _OF_THE_FILE and place.mtime_ns is not None and _can_be_listed(os.path.dirname(place.file)):
            return Done(position, digest, dict.fromkeys(pixels, error.strerror or str(error)))
        # The image may be good, and the network or the disk is not.
        raise PipetuneError(
            f"cannot read {place.file!r}: {error.strerror or error}", hint="--resume goes on once it can be read"
        ) from error
    told = (str(one) if isinstance(one, Rejected) else one for one in found)
    # Here and not where it is written: one thread writes for all.
    hashes = [digest if isinstance(one, Packed) and one.data is data else hash_of(one.data) if isinstance(one, Packed)
              else "" for one in found]  # fmt: skip
    return Done(position, digest, dict(zip(pixels, told, strict=True)), dict(zip(pixels, hashes, strict=True)))


def no_memory(place: Location) -> PipetuneError:
    """Of an image that needs more memory than there is."""
    return PipetuneError(f"not enough memory to pack {place.file!r}", hint="fewer --threads, and --resume")


def _can_be_listed(folder: str) -> bool:
    try:
        with os.scandir(folder) as entries:
            next(entries, None)
            return True
    except OSError:
        return False


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
