"""How long a pack takes: a sample is packed as all of it will be, and the disk is tried."""

from __future__ import annotations

import contextlib
import glob
import math
import os
import random
import shutil
import socket
import tempfile
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median, stdev

from pipetune.errors import PipetuneError
from pipetune.packing.formats.contract import Format
from pipetune.packing.layout import Split
from pipetune.packing.options import Pixels
from pipetune.packing.shard import Pack, Shard
from pipetune.packing.shards import Wanted, packed_in_order
from pipetune.packing.sources import Sources
from pipetune.records.pack import CORES, READING, WRITING

#: Packing on trial takes about so long (s), and writes so many bytes, and takes this share of the pack at most.
_TRIAL_S, _TRIAL_BYTES, _TRIAL_SHARE = 2.0, 256 << 20, 0.2
#: It takes so many images at least where there are as many, and so many for each thread, and ends after so long (s).
_TRIED, _TRIED_BY_EACH, _LONGEST_TRIAL_S = 50, 3, 5.0
#: Names of what is written on trial begin so; the host's name and the process's number follow.
_TRIAL = ".pipetune-trial-"
#: Written on trial, to see what the disk takes: so many files of so many bytes, whose median counts, because one that
#: waits for somebody else's writing takes up to ten times as long.
_DISK_TRIALS, _DISK_BYTES = 5, 16 << 20
#: No further trial is begun after so long (s).
_DISK_TRIALS_S = 2.0
#: Relative uncertainty of the time (95 %) besides what the sample shows: other images at the same time, caches, a
#: machine that changes its speed. Eighteen packs of 6,000 images took up to 19 % more or less than predicted, 10 % in
#: the quadratic mean (the packs of ``pack_gain.py``, three times each, two cores of a virtual machine).
_TIME_ERROR = 0.25


@dataclass(frozen=True, slots=True)
class Work:
    """What a sampled image takes, of all packs together (s)."""

    cpu_s: float
    read_s: float
    """Reading it from storage, less the share of such images that is in memory."""


@dataclass(frozen=True, slots=True)
class Disk:
    """What a disk takes, brought to it."""

    bytes_per_s: float
    wait_s_per_byte: float
    """Of that time, what is spent waiting: handing bytes to the kernel is counted with packing."""
    waits_s_per_byte: tuple[float, float]
    """The same of the fastest and of the slowest trial."""


@dataclass(frozen=True, slots=True)
class Duration:
    """How long a pack takes."""

    seconds: float
    ci95: tuple[float, float]
    limited_by: str


def try_packing(
    sources: Sources, order: Sequence[int], format_: Format, wanted: Sequence[Pixels], *, out: Path, threads: int,
    cpu_s: float, bytes_per_image: float, seed: int,
) -> float | None:  # fmt: skip
    """Time (s) that an image takes when some are packed as all of them will be, written but not brought to the disk.

    Why not by the CPU time of an image: threads share caches, memory and Python's global lock, and on a virtual
    machine the cores with others. Why not the same few images again and again: a processor's cache would hold them.

    Args:
        order: the images of the packs.
        wanted: what each pack does to the images.
        out: where the packs will be; shards are written there for a moment.
        cpu_s: that an image takes, roughly; as many are packed as it takes to see a rate.
        bytes_per_image: that are written of each, roughly.

    Returns:
        ``None``: the disk refuses, an image cannot be read any more, or there is one alone.
    """
    count = min(
        _TRIAL_S * threads / max(cpu_s, 1e-5), _TRIAL_BYTES / max(bytes_per_image, 1.0), _TRIAL_SHARE * len(order)
    )
    least = max(_TRIED, _TRIED_BY_EACH * threads)
    chosen = sorted(random.Random(seed).sample(range(len(order)), min(len(order), max(least, round(count)))))
    some = array("q", (order[position] for position in chosen))
    try:
        with tempfile.TemporaryDirectory(prefix=_trial_name(f"{os.getpid()}-"), dir=existing(out)) as folder:
            packs = []
            for number, pixels in enumerate(wanted):
                place = Path(folder) / str(number)
                place.mkdir()
                packs.append(Pack(
                    folder=place, format=format_, sources=sources, split=Split("", some), pixels=pixels, shards=1,
                    labels=tuple(range(len(sources.classes))),
                ))  # fmt: skip
            return _time_packing(packs, len(some), threads)
    except (OSError, PipetuneError):  # the plan is worth having without it
        return None


def _time_packing(packs: Sequence[Pack], count: int, threads: int) -> float | None:
    everything = [Wanted(range(count), tuple(range(len(packs))))]
    shards: list[Shard] = []
    began, packed, took = 0.0, 0, 0.0
    # When the first image is ready, the other threads have packed most of theirs: not measured from there on. What they
    # have under way when it begins is about what some of them do not do any more at the end.
    before = max(1, min(threads, count - 1))
    try:
        shards += (Shard(pack, 0) for pack in packs)
        with contextlib.closing(packed_in_order(packs, everything, threads)) as ready:
            for number_done, done in enumerate(ready, 1):
                for number, shard in enumerate(shards):
                    shard.add(done, done.found[number], done.hashes.get(number, ""))
                if number_done <= before:
                    began = time.monotonic()
                    continue
                packed, took = packed + 1, time.monotonic() - began
                if took > _LONGEST_TRIAL_S:  # storage is slow
                    break
        return took / packed if packed else None
    finally:
        for shard in shards:
            shard.abandon()


def remove_trials(out: Path) -> None:
    """What a process of this host that was killed has left of its trials: other hosts may write parts of the pack."""
    import psutil

    mine = _trial_name("")
    for path in existing(out).glob(f"{glob.escape(mine)}*"):
        number = path.name.removeprefix(mine).partition("-")[0]
        if not (number.isdigit() and psutil.pid_exists(int(number))):
            with contextlib.suppress(OSError):
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def _trial_name(process: str) -> str:
    return f"{_TRIAL}{socket.gethostname().replace('/', '_')}@{process}"  # no host's name has an @


def existing(out: Path) -> Path:
    """The folder, or the one above it that is there."""
    while not out.is_dir() and out != out.parent:
        out = out.parent
    return out


def try_disk(out: Path) -> Disk | None:
    """What the disk takes; ``None``: nothing."""
    piece = os.urandom(1 << 20)  # or a file system that compresses would look fast
    tried: list[tuple[float, float]] = []
    first = time.monotonic()
    try:
        # A name that nobody foresees, and that is not there yet: others may write into this folder, too.
        fd, trial = tempfile.mkstemp(prefix=_trial_name(f"{os.getpid()}-"), dir=existing(out))
        try:
            while len(tried) < _DISK_TRIALS and (not tried or time.monotonic() - first < _DISK_TRIALS_S):
                tried.append(_write(fd, piece))
        finally:
            os.close(fd)
            with contextlib.suppress(OSError):
                os.unlink(trial)
    except OSError:
        return None
    waits = [wait for _, wait in tried]
    return Disk(median(rate for rate, _ in tried), median(waits), (min(waits), max(waits)))


def _write(fd: int, piece: bytes) -> tuple[float, float]:
    """Bytes per second of a file, and for each byte the seconds spent waiting."""
    os.ftruncate(fd, 0)
    os.lseek(fd, 0, os.SEEK_SET)
    began, began_cpu, written = time.monotonic(), time.thread_time(), 0
    while written < _DISK_BYTES and time.monotonic() - began < _DISK_TRIALS_S:
        written += os.write(fd, piece)
    os.fsync(fd)
    wall, cpu = time.monotonic() - began, time.thread_time() - began_cpu
    return written / wall, max(0.0, wall - cpu) / written


def predict_duration(
    works: Sequence[Work], image_s: float | None, *, count: int, total_bytes: float, disk: Disk | None, threads: int,
    cores: float,
) -> Duration:  # fmt: skip
    """Time of packing.

    Args:
        works: of the sample's images.
        image_s: from :func:`try_packing`, with reading; ``None``: the sample's times have to do.
        count: images of the pack.
        total_bytes: that are written.
        cores: that may be used.
    """
    if not works:
        return Duration(0.0, (0.0, 0.0), CORES)
    cpu_s, read_s = fmean(one.cpu_s for one in works), fmean(one.read_s for one in works)
    if image_s is None:
        # A thread that reads does not pack. With as many threads as cores it does one after the other; with more, the
        # cores are busy meanwhile.
        image_s = max(cpu_s / min(threads, cores), (cpu_s + read_s) / threads)
    packing_s = count * image_s
    # Shards are brought to the disk while the next ones are packed.
    writing_s = total_bytes * disk.wait_s_per_byte if disk else 0.0
    seconds = max(packing_s, writing_s)
    limit = WRITING if writing_s > packing_s else READING if read_s > cpu_s else CORES
    fastest, slowest = (max(packing_s, total_bytes * wait) for wait in (disk.waits_s_per_byte if disk else (0.0, 0.0)))
    scatter = stdev(one.cpu_s for one in works) / cpu_s / math.sqrt(len(works)) if len(works) > 1 and cpu_s else 0.0
    half = math.hypot(_TIME_ERROR, 2 * scatter)
    return Duration(seconds, (fastest * max(0.0, 1 - half), slowest * (1 + half)), limit)
