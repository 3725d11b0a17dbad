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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

from pipetune.datasets.image_header import parse_header
from pipetune.packing.fidelity import compare_crops, enlarged_frac
from pipetune.packing.formats.contract import Format, Sample
from pipetune.packing.layout import shards_for
from pipetune.packing.manifest import hash_of, line_of
from pipetune.packing.options import Pixels
from pipetune.packing.pixels import COPIED, TRANSCODED, Packed, Rejected, pack_image
from pipetune.packing.shards import read_source
from pipetune.packing.sources import Sources
from pipetune.records.pack import CORES, READING, WRITING, Entry, PackPlan
from pipetune.stats.intervals import t95

#: Images that are packed on trial. However long it takes: the number of shards follows from them.
_SAMPLED = 100
#: Written on trial (bytes), to see what the disk takes.
_TRIAL_BYTES = 64 << 20
#: Crops are compared of so many images.
_COMPARED = 24
#: Share of a further core that packing gets from it: memory that cores share, and Python's global lock, take the rest.
#: With this and the next one, four packs of 1,500 images took within 3 % of what was predicted (``pack_gain.py``).
_FROM_A_CORE = 0.9
#: By how much the thread that writes is busier than with writing: it hands images to the others and waits for them.
_MAIN_THREAD = 1.5
#: Relative uncertainty of the time besides what the sample shows: other images at the same time, caches, the disk.
_TIME_ERROR = 0.12


@dataclass(frozen=True, slots=True)
class Tried:
    """A sampled image."""

    source_bytes: int
    packed: Packed
    size: tuple[int, int]
    """Of the source (px)."""
    cpu_s: float
    read_s: float
    """Reading it, from storage where it could be dropped from memory."""
    decode_s: tuple[float, float] | None
    """Time that Pillow takes for source and packed image; ``None``: one does not decode."""
    data: bytes | None
    """The source, of those whose crops are compared."""


def predict(
    sources: Sources, order: array[int], format_: Format, pixels: Pixels, *, out: Path, shard_bytes: int, threads: int,
    cores: float, crop: int, seed: int, report: Callable[[str, int, int | None], None], classes: int,
) -> PackPlan:  # fmt: skip
    """Pack some images on trial and predict the rest.

    Args:
        order: the images of the pack.
        out: where it will be; a file is written there for a moment.
        cores: that may be used.
        crop: edge of the training crops (px).
        classes: number of them in the pack.

    Raises:
        OSError: the disk refuses.
        MissingPackageError: a package that the pack needs is not there.
    """
    chosen = random.Random(seed).sample(range(len(order)), min(_SAMPLED, len(order)))
    tried: list[Tried] = []
    rejected = 0
    for number, position in enumerate(chosen):
        report("packing a sample", number, len(chosen))
        one = _try(sources, order[position], pixels, keep=sum(one.data is not None for one in tried) < _COMPARED)
        if one is None:
            rejected += 1
        else:
            tried.append(one)
    report("packing a sample", len(chosen), len(chosen))
    source_bytes = sum(sources.where(number).size for number in order)
    rate, write_s = _write_rate(out), _write_cpu_s(out, format_, [one.packed for one in tried])
    total, interval = _total_bytes(tried, source_bytes, len(order), format_)
    seconds, seconds_ci95, limit, cpu_s = _seconds(tried, len(order), total, rate, write_s, threads, cores)
    pairs = [(one.data, one.packed.data) for one in tried if one.data is not None]
    return PackPlan(
        images=len(order), classes=classes, source_bytes=source_bytes, sampled=len(tried), sample_rejected=rejected,
        total_bytes=total, total_bytes_ci95=interval, shards=shards_for(total, len(order), shard_bytes),
        seconds=seconds, seconds_ci95=seconds_ci95, limited_by=limit, cpu_s_per_image=cpu_s + write_s,
        write_bytes_per_s=rate,
        unusable=sources.problem_count, decode_time_frac=_decode_frac(tried),
        enlarged_before_frac=enlarged_frac([one.size for one in tried], crop),
        enlarged_after_frac=enlarged_frac([(one.packed.width, one.packed.height) for one in tried], crop),
        fidelity=compare_crops(pairs, crop), done=dict(Counter(one.packed.done for one in tried)),
    )  # fmt: skip


def _try(sources: Sources, number: int, pixels: Pixels, *, keep: bool) -> Tried | None:
    place = sources.where(number)
    try:
        _forget(place.file)
        began = time.monotonic()
        data = read_source(place)
        read_s = time.monotonic() - began
        began_cpu = time.thread_time()
        hash_of(data)
        packed = pack_image(data, pixels)
        hash_of(packed.data)
        cpu_s = time.thread_time() - began_cpu
        header = parse_header(data)
    except (Rejected, OSError):
        return None
    changed = packed.done not in (COPIED, TRANSCODED)
    same = packed.done == COPIED
    return Tried(
        place.size, packed, (header.width, header.height), cpu_s, read_s, None if same else _decode_times(data, packed),
        data if keep and changed else None,
    )  # fmt: skip


def _forget(path: str) -> None:
    """Drop a file from the page cache, so that reading it shows what storage takes."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


def _total_bytes(
    tried: Sequence[Tried], source_bytes: int, count: int, format_: Format
) -> tuple[float, tuple[float, float]]:
    """Bytes of the pack, with the 95 % interval of a ratio estimator (Cochran, Sampling Techniques, ch. 6)."""
    if not tried:
        return 0.0, (0.0, 0.0)
    ratio = sum(len(one.packed.data) for one in tried) / max(1, sum(one.source_bytes for one in tried))
    extra = count * format_.per_sample_bytes
    half = 0.0
    if len(tried) > 1:
        rest = [len(one.packed.data) - ratio * one.source_bytes for one in tried]
        share_left = max(0.0, 1 - len(tried) / count)
        half = t95(len(tried) - 1) * count * stdev(rest) * math.sqrt(share_left / len(tried))
    total = ratio * source_bytes
    return total + extra, (max(0.0, total - half) + extra, total + half + extra)


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
    tried: Sequence[Tried],
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


def _decode_times(data: bytes, packed: Packed) -> tuple[float, float] | None:
    from PIL import Image

    times = []
    for one in (data, packed.data):
        began = time.thread_time()
        try:
            with Image.open(io.BytesIO(one)) as image:
                image.convert("RGB")
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
            return None
        times.append(time.thread_time() - began)
    return times[0], times[1]


def _decode_frac(tried: Sequence[Tried]) -> float | None:
    """Time that Pillow takes for the packed images, as a share of the sources', those included that are copied."""
    times = [one.decode_s for one in tried if one.decode_s is not None]
    if not times:
        return None
    before = fmean(one[0] for one in times)
    copied = sum(one.packed.done == COPIED for one in tried) * before
    return (sum(one[1] for one in times) + copied) / (sum(one[0] for one in times) + copied) if before else None
