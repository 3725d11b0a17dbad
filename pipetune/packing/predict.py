"""Packs a sample on trial, to predict what a pack will be: bytes, minutes, and how close its crops are."""

from __future__ import annotations

import io
import math
import os
import random
import time
from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

from pipetune.datasets.image_header import NotAnImage, parse_header
from pipetune.measure.page_cache import residency
from pipetune.packing.duration import Work, predict_duration, try_disk, try_packing
from pipetune.packing.fidelity import compare_crops, enlarged_frac
from pipetune.packing.formats.contract import Format
from pipetune.packing.layout import shards_for
from pipetune.packing.manifest import hash_of
from pipetune.packing.options import Pixels
from pipetune.packing.pixels import COPIED, DECODED, TRANSCODED, TURNED_LOSSLESS, Packed, Rejected, pack_images
from pipetune.packing.shards import no_memory, read_source
from pipetune.packing.sources import Location, Sources
from pipetune.records.pack import Gain, PackPlan
from pipetune.stats.intervals import t95

#: Images that are packed on trial. However long it takes: the number of shards follows from them.
_SAMPLED = 200
#: Share of a pack that heads and ends of shards may take, which are not counted.
_HEADS = 0.001
#: A smaller share that is read from storage takes no time.
_SOME = 0.01
#: Orientation of an image that is not turned: turning costs as much before as after.
_AS_STORED = 1
#: Crops are compared of so many images.
_COMPARED = 48


@dataclass(frozen=True, slots=True)
class Tried:
    """A sampled image as one of the packs has it."""

    source_bytes: int
    packed: Packed
    size: tuple[int, int]
    """Of the source (px)."""
    decode_s: tuple[float, float] | None
    """Time that Pillow takes for source and packed image; ``None``: one does not decode, or is not decoded."""
    data: bytes | None
    """The source, of those whose crops are compared."""


def predict(
    sources: Sources, order: array[int], format_: Format, wanted: Sequence[Pixels], *, out: Path, shard_bytes: int,
    threads: int, cores: float, crop: int, seed: int, report: Callable[[str, int, int | None], None], classes: int,
    gains_of: Callable[[Sequence[Mapping[int, Packed]]], list[Gain | None]] | None = None,
) -> list[PackPlan]:  # fmt: skip
    """Pack some images on trial and predict the rest.

    Args:
        order: the images of the packs.
        wanted: what each pack does to them; all are written at the same time.
        out: where they will be; a file is written there for a moment.
        cores: that may be used.
        crop: edge of the training crops (px).
        classes: number of them in a pack.
        gains_of: measures what the packs' samples gain, each of which is: place in the order -> the image as it is
            packed.

    Raises:
        OSError: the disk refuses.
        MissingPackageError: a package that the pack needs is not there.
    """
    chosen = random.Random(seed).sample(range(len(order)), min(_SAMPLED, len(order)))
    tried: list[list[Tried]] = [[] for _ in wanted]
    packed: list[dict[int, Packed]] = [{} for _ in wanted]
    works: list[Work] = []
    from_storage = _from_storage(sources, [order[position] for position in chosen])
    for number, position in enumerate(chosen):
        report("packing a sample", number, len(chosen))
        work, found = _try(sources, order[position], wanted, keep=number < _COMPARED, from_storage=from_storage)
        if any(one is not None for one in found):
            works.append(work)
        for place, one in enumerate(found):
            if one is not None:
                tried[place].append(one)
                packed[place][position] = one.packed
    report("packing a sample", len(chosen), len(chosen))
    source_bytes = sum(sources.where(number).size for number in order)
    totals = [_total_bytes(of, len(chosen) - len(of), source_bytes, len(order), format_) for of in tried]
    total_bytes = sum(total for total, _ in totals)
    cpu_s = fmean(one.cpu_s for one in works) if works else 0.0
    image_s = try_packing(
        sources, order, format_, wanted, out=out, threads=threads, cpu_s=cpu_s, seed=seed + 1,
        bytes_per_image=total_bytes / len(order),
    ) if works else None  # fmt: skip
    disk = try_disk(out)
    duration = predict_duration(
        works, image_s, count=len(order), total_bytes=total_bytes, disk=disk, threads=threads, cores=cores
    )
    gains: list[Gain | None] = [None] * len(wanted)
    if gains_of is not None and any(packed):
        gains = gains_of(packed)
    plans = []
    for place, (of, pixels) in enumerate(zip(tried, wanted, strict=True)):
        total, interval = totals[place]
        pairs = [(one.data, one.packed.data) for one in of if one.data is not None]
        plans.append(PackPlan(
            images=len(order), classes=classes, source_bytes=source_bytes, sampled=len(of),
            sample_rejected=len(chosen) - len(of), total_bytes=total, total_bytes_ci95=interval,
            shards=shards_for(total, len(order), shard_bytes), seconds=duration.seconds, seconds_ci95=duration.ci95,
            together=len(wanted), limited_by=duration.limited_by, cpu_s_per_image=cpu_s,
            write_bytes_per_s=None if disk is None else disk.bytes_per_s,
            unusable=sources.problem_count, decode_time_frac=_decode_frac(of),
            enlarged_before_frac=enlarged_frac([one.size for one in of], crop),
            enlarged_after_frac=enlarged_frac([(one.packed.width, one.packed.height) for one in of], crop),
            fidelity=compare_crops(pairs, crop, raw=pixels.raw), cut_off_frac=_cut_off(of) if pixels.raw else 0.0,
            done=dict(Counter(one.packed.done for one in of)),
            gain=gains[place], audit=sources.audit,
        ))  # fmt: skip
    return plans


def _from_storage(sources: Sources, numbers: Sequence[int]) -> float:
    """Share of some images that is not in memory and will be read from storage; all of it where nobody knows."""
    share = residency(sorted({sources.where(number).file for number in numbers})).frac
    return 1.0 if share is None else 1 - share


def _try(
    sources: Sources, number: int, wanted: Sequence[Pixels], *, keep: bool, from_storage: float
) -> tuple[Work, list[Tried | None]]:
    place = sources.where(number)
    nothing: tuple[Work, list[Tried | None]] = Work(0.0, 0.0), [None] * len(wanted)
    try:
        if from_storage >= _SOME:
            _forget(place)
        began = time.monotonic()
        data = read_source(place)
        read_s = from_storage * (time.monotonic() - began)
        began_cpu = time.thread_time()
        hash_of(data)
        found = pack_images(data, wanted)
        for one in found:
            if isinstance(one, Packed) and one.data is not data:
                hash_of(one.data)
        cpu_s = time.thread_time() - began_cpu
        header = parse_header(data)
    except (Rejected, NotAnImage, OSError):
        return nothing
    except MemoryError as error:
        raise no_memory(place) from error
    same = (COPIED, DECODED)
    before = None
    if any(isinstance(one, Packed) and one.done not in same for one in found):
        before = _decode_time(data)
    tried: list[Tried | None] = []
    for one in found:
        if isinstance(one, Rejected):
            tried.append(None)
            continue
        after = None if one.done in same or before is None else _decode_time(one.data)
        times = None if before is None or after is None else (before, after)
        kept = data if keep and one.done not in (COPIED, TRANSCODED, TURNED_LOSSLESS) else None
        tried.append(Tried(place.size, one, (header.width, header.height), times, kept))
    return Work(cpu_s, read_s), tried


def _forget(place: Location) -> None:
    """Drop an image from the page cache, so that reading it shows what storage takes; not all of the shard it is in."""
    fd = os.open(place.file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        os.posix_fadvise(fd, place.start, place.size, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


def _total_bytes(
    tried: Sequence[Tried], rejected: int, source_bytes: int, count: int, format_: Format
) -> tuple[float, tuple[float, float]]:
    """Bytes of the pack, with the 95 % interval of a ratio estimator (Cochran, Sampling Techniques, ch. 6), or of the
    mean where packed images differ less among themselves; less the share that will be rejected."""
    if not tried:
        return 0.0, (0.0, 0.0)
    sizes, number = [len(one.packed.data) for one in tried], len(tried) + rejected
    ratio = sum(sizes) / max(1, sum(one.source_bytes for one in tried))
    rest = [size - ratio * one.source_bytes for size, one in zip(sizes, tried, strict=True)]
    total = ratio * source_bytes
    if len(tried) > 1 and stdev(sizes) < stdev(rest):
        rest, total = [float(size) for size in sizes], count * fmean(sizes)
    share_left, half = math.sqrt(max(0.0, 1 - number / count) / len(tried)), 0.0
    if len(tried) > 1:
        half = t95(len(tried) - 1) * count * stdev(rest) * share_left
    kept = len(tried) / number
    extra = count * format_.per_sample_bytes
    half = math.hypot(kept * half, 2 * math.sqrt(kept * (1 - kept)) * share_left * (total + extra))
    found = kept * (total + extra)
    half = max(half, _HEADS * found)
    return found, (max(0.0, found - half), found + half)


def _cut_off(tried: Sequence[Tried]) -> float:
    """Share of the sources' pixels outside of the squares in their middles."""
    return 1 - fmean(min(one.size) / max(one.size) for one in tried) if tried else 0.0


def _decode_time(data: bytes) -> float | None:
    """CPU time that Pillow takes to decode an image (s); ``None``: it does not decode."""
    from PIL import Image

    from pipetune.datasets.pillow_rgb import to_rgb

    began = time.thread_time()
    try:
        with Image.open(io.BytesIO(data)) as image:
            to_rgb(image, _AS_STORED)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return None
    return time.thread_time() - began


def _decode_frac(tried: Sequence[Tried]) -> float | None:
    """Time that Pillow takes for the packed images, as a share of the sources', those included that are copied."""
    times = [one.decode_s for one in tried if one.decode_s is not None]
    if not times:
        return None
    before = fmean(one[0] for one in times)
    copied = sum(one.packed.done == COPIED for one in tried) * before
    return (sum(one[1] for one in times) + copied) / (sum(one[0] for one in times) + copied) if before else None
