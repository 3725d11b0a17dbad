"""Packs a sample on trial, to predict what a pack will be: bytes, minutes, and how close its crops are."""

from __future__ import annotations

import contextlib
import io
import math
import os
import random
import tempfile
import time
from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

from pipetune.datasets.image_header import NotAnImage, parse_header
from pipetune.packing.fidelity import compare_crops, enlarged_frac
from pipetune.packing.formats.contract import Format, Sample
from pipetune.packing.layout import shards_for
from pipetune.packing.manifest import hash_of, line_of
from pipetune.packing.options import Pixels
from pipetune.packing.pixels import COPIED, DECODED, TRANSCODED, TURNED_LOSSLESS, Packed, Rejected, pack_images
from pipetune.packing.shards import read_source
from pipetune.packing.sources import Sources
from pipetune.records.pack import CORES, READING, WRITING, Entry, Gain, PackPlan
from pipetune.stats.intervals import t95

#: Images that are packed on trial. However long it takes: the number of shards follows from them.
_SAMPLED = 100
#: Share of a pack that heads and ends of shards may take, which are not counted.
_HEADS = 0.001
#: Written on trial (bytes), to see what the disk takes.
_TRIAL_BYTES = 64 << 20
#: Crops are compared of so many images.
_COMPARED = 24
#: Share of a further core that packing gets from it: memory that cores share, and Python's global lock, take the rest.
#: With this and the next one, packs of 1,500 images that were made smaller took within 11 % of what was predicted in
#: two runs of ``pack_gain.py``; pixels within 18 %, those without loss within 23 %, and copies, limited by the disk,
#: 56 %.
_FROM_A_CORE = 0.9
#: By how much the thread that writes is busier than with writing: it hands images to the others and waits for them.
_MAIN_THREAD = 1.5
#: Relative uncertainty of the time besides what the sample shows: other images at the same time, caches, the disk.
_TIME_ERROR = 0.12


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


@dataclass(frozen=True, slots=True)
class Work:
    """What an image takes, of all packs together (s)."""

    cpu_s: float
    read_s: float
    """Reading it, from storage where it could be dropped from memory."""


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
    for number, position in enumerate(chosen):
        report("packing a sample", number, len(chosen))
        work, found = _try(sources, order[position], wanted, keep=number < _COMPARED)
        if any(one is not None for one in found):
            works.append(work)
        for place, one in enumerate(found):
            if one is not None:
                tried[place].append(one)
                packed[place][position] = one.packed
    report("packing a sample", len(chosen), len(chosen))
    source_bytes = sum(sources.where(number).size for number in order)
    rate = _write_rate(out)
    write_s = sum(_write_cpu_s(out, format_, [one.packed for one in of]) for of in tried)
    totals = [_total_bytes(of, len(chosen) - len(of), source_bytes, len(order), format_) for of in tried]
    seconds, seconds_ci95, limit, cpu_s = _seconds(
        works, len(order), sum(total for total, _ in totals), rate, write_s, threads, cores
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
            shards=shards_for(total, len(order), shard_bytes), seconds=seconds, seconds_ci95=seconds_ci95,
            together=len(wanted), limited_by=limit, cpu_s_per_image=cpu_s + write_s, write_bytes_per_s=rate,
            unusable=sources.problem_count, decode_time_frac=_decode_frac(of),
            enlarged_before_frac=enlarged_frac([one.size for one in of], crop),
            enlarged_after_frac=enlarged_frac([(one.packed.width, one.packed.height) for one in of], crop),
            fidelity=compare_crops(pairs, crop, raw=pixels.raw), cut_off_frac=_cut_off(of) if pixels.raw else 0.0,
            done=dict(Counter(one.packed.done for one in of)),
            gain=gains[place],
        ))  # fmt: skip
    return plans


def _try(sources: Sources, number: int, wanted: Sequence[Pixels], *, keep: bool) -> tuple[Work, list[Tried | None]]:
    place = sources.where(number)
    nothing: tuple[Work, list[Tried | None]] = Work(0.0, 0.0), [None] * len(wanted)
    try:
        _forget(place.file)
        began = time.monotonic()
        data = read_source(place)
        read_s = time.monotonic() - began
        began_cpu = time.thread_time()
        hash_of(data)
        found = pack_images(data, wanted)
        for one in found:
            if isinstance(one, Packed):
                hash_of(one.data)
        cpu_s = time.thread_time() - began_cpu
        header = parse_header(data)
    except (Rejected, NotAnImage, OSError):
        return nothing
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


def _forget(path: str) -> None:
    """Drop a file from the page cache, so that reading it shows what storage takes."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
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


def _write_cpu_s(out: Path, format_: Format, packed: Sequence[Packed]) -> float:
    """CPU time (s) that one thread takes to write an image into a shard, and its line of the manifest."""
    if not packed:
        return 0.0
    with tempfile.TemporaryDirectory(prefix=".pipetune-trial-", dir=_existing(out)) as folder:
        began = time.thread_time()
        writer = format_.open(Path(folder), format_.shard_name(0), len(packed))
        try:
            for number, one in enumerate(packed):
                place = writer.add(Sample(number, f"trial/{number}", one.ending, 0, one.data))
                line_of(Entry(
                    number=number, key="trial", source="trial", source_bytes=0, source_hash="", file=place.file,
                    start=place.start, length=place.length, hash=hash_of(one.data), width=one.width,
                    height=one.height, orientation=1, label=0, done=one.done,
                ))  # fmt: skip
            writer.finish()
        finally:
            writer.abandon()
        return _MAIN_THREAD * (time.thread_time() - began) / len(packed)


def _existing(out: Path) -> Path:
    """The folder, or the one above it that is there."""
    while not out.is_dir() and out != out.parent:
        out = out.parent
    return out


def _write_rate(out: Path) -> float | None:
    """Bytes per second that the disk takes, brought to it."""
    trial = _existing(out) / f".pipetune-trial-{os.getpid()}.tmp"
    piece = os.urandom(1 << 20)  # or a file system that compresses would look fast
    began = time.monotonic()
    written = 0
    try:
        with trial.open("wb", buffering=0) as file:
            while written < _TRIAL_BYTES and time.monotonic() - began < 2:
                written += file.write(piece)
            os.fsync(file.fileno())
        return written / (time.monotonic() - began)
    except OSError:
        return None
    finally:
        with contextlib.suppress(OSError):
            trial.unlink()


def _seconds(
    tried: Sequence[Work],
    count: int,
    total_bytes: float,
    write_rate: float | None,
    write_s: float,
    threads: int,
    cores: float,
) -> tuple[float, tuple[float, float], str, float]:
    """Time of packing, its interval, what limits it, and CPU time of an image (s)."""
    if not tried:
        return 0.0, (0.0, 0.0), CORES, 0.0
    cpu_s = fmean(one.cpu_s for one in tried)
    read_s = fmean(one.read_s for one in tried)
    # One thread writes what the others pack.
    busy = min(threads + 1 if threads > 1 else 1, cores)
    times = {
        CORES: count * (cpu_s + write_s) / (1 + _FROM_A_CORE * (busy - 1)),
        READING: count * (cpu_s + read_s) / threads if read_s > cpu_s else 0.0,
        WRITING: count * write_s + (total_bytes / write_rate if write_rate else 0.0),
    }
    limit = max(times, key=lambda name: times[name])
    seconds = times[limit]
    scatter = stdev(one.cpu_s for one in tried) / cpu_s / math.sqrt(len(tried)) if len(tried) > 1 and cpu_s else 0.0
    half = math.hypot(_TIME_ERROR, 2 * scatter)
    return seconds, (seconds * max(0.0, 1 - half), seconds * (1 + half)), limit, cpu_s


def _decode_time(data: bytes) -> float | None:
    """CPU time that Pillow takes to decode an image (s); ``None``: it does not decode."""
    from PIL import Image

    began = time.thread_time()
    try:
        with Image.open(io.BytesIO(data)) as image:
            image.convert("RGB")
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
