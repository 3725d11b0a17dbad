"""What is asked: options with lists of values, turned into questions. Pure."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pipetune.augmentation.recipes import DEVICE, PLACES
from pipetune.errors import UsageError, did_you_mean
from pipetune.records.explanation import HAND_OVER
from pipetune.records.prediction import Disk, Question
from pipetune.units import format_bytes, format_rate

T = TypeVar("T")

_MB, _MIB = 1e6, 2.0**20
#: The one kind of storage that does one thing at a time.
HARD_DISK = "hdd"
#: Storage by name, and of which model: what it delivers at most, as its maker states it. Yours may be another model.
_STATED = (
    (Disk(name=HARD_DISK, bytes_per_s=270 * _MB, requests_per_s=170), "Seagate Exos X18, with 16 reads waiting"),
    (Disk(name="sata", bytes_per_s=560 * _MB, requests_per_s=98_000), "Samsung 870 EVO, with 32 reads waiting"),
    (Disk(name="nvme", bytes_per_s=7_450 * _MB, requests_per_s=1_400_000), "Samsung 990 PRO with 2 TB"),
    (Disk(name="gp3", bytes_per_s=125 * _MIB, requests_per_s=3_000), "an AWS EBS volume, unless more was bought"),
    # EFS user guide, performance. With elastic throughput and amazon-efs-utils 2 it is 1,500 MiB/s.
    (Disk(name="efs", bytes_per_s=500 * _MIB), "AWS EFS, one client"),
)
DISKS: dict[str, Disk] = {str(disk.name): disk for disk, _ in _STATED}
#: Name -> the model whose figures it has.
MODELS: dict[str, str] = {str(disk.name): model for disk, model in _STATED}
_DISK_HINT = f"write it as 500MB/s, 8000iops, 500MB/s,8000iops, or one of {', '.join(DISKS)}"
_BANDWIDTH = re.compile(r"([0-9]*\.?[0-9]+)\s*(k|m|g|t)(i?)b/s")
_BITS = re.compile(r"[0-9.]+\s*[kKmMgGtT]i?(b/s|bps|bit/s)")
_REQUESTS = re.compile(r"([0-9]*\.?[0-9]+)\s*(k?)\s*iops")
_POWERS = {"k": 1, "m": 2, "g": 3, "t": 4}
#: Without a unit, fewer bytes than this are a mistake.
_LEAST_PLAIN = 2**20
_SIZE = re.compile(r"([0-9]*\.?[0-9]+)\s*(k|m|g|t)(i?)b?")
#: More questions than this are a mistake.
MOST_QUESTIONS = 200
_MOST_CORES, _MOST_RANKS, _MOST_PIXELS = 4096, 1024, 16384


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The options as they were written; ``None``: not given."""

    cores: str | None = None
    workers: str | None = None
    disk: str | None = None
    memory: str | None = None
    device: str | None = None
    ranks: str | None = None
    image_size: str | None = None
    shorter_edge: str | None = None
    transforms: str | None = None


def questions_of(asked: Asked) -> tuple[Question, ...]:
    """Every combination of the values, in the order of the options; ``()``: nothing is asked.

    Raises:
        UsageError: a value that cannot be read or is out of range, or too many combinations.
    """
    axes: list[list[dict[str, Any]]] = []

    def add(name: str, values: Sequence[Any]) -> None:
        if values:
            axes.append([{name: value} for value in values])

    add("cores", _listed("--cores", asked.cores, lambda text: _number("--cores", text, 0.1, _MOST_CORES)))
    add("workers", _listed("--workers", asked.workers, lambda text: _whole("--workers", text, 0, _MOST_CORES)))
    add("disk", () if asked.disk is None else parse_disks(asked.disk))
    add("memory_bytes", _listed("--memory", asked.memory, parse_memory))
    add("device", _listed("--device", asked.device, str))
    add("ranks", _listed("--ranks", asked.ranks, lambda text: _whole("--ranks", text, 1, _MOST_RANKS)))
    add("image_size", _listed("--image-size", asked.image_size, lambda text: _whole("--image-size", text, 8, 4096)))
    edges = _listed("--shorter-edge", asked.shorter_edge, lambda text: _whole("--shorter-edge", text, 8, _MOST_PIXELS))
    add("shorter_edge", edges)
    add("transforms", _listed("--transforms", asked.transforms, _place))
    if not axes:
        return ()
    count = math.prod(map(len, axes))
    if count > MOST_QUESTIONS:
        raise UsageError(f"these are {count} questions, more than {MOST_QUESTIONS}", hint="name fewer values")
    return tuple(
        Question(**{name: value for one in chosen for name, value in one.items()})
        for chosen in itertools.product(*axes)
    )


def _place(text: str) -> str:
    """Where images are augmented.

    Raises:
        UsageError: there is no such place.
    """
    if text not in PLACES:
        raise UsageError(f"--transforms {text!r} is no place", hint=did_you_mean(text, PLACES))
    return text


def parse_disks(text: str) -> tuple[Disk, ...]:
    """``'500MB/s,8000iops,hdd'`` -> two disks: requests belong to the bytes before them, unless ``;`` is between.

    Raises:
        UsageError: neither a rate nor a name.
    """
    return tuple(disk for part in text.split(";") for disk in _parse_group(part))


def _parse_group(text: str) -> tuple[Disk, ...]:
    disks: list[Disk] = []
    for written in (part.strip() for part in text.split(",") if part.strip()):
        part = written.lower()
        if _BITS.fullmatch(written):
            raise UsageError(f"--disk {written!r} are bits", hint="a byte has eight: write it as 1250MB/s for 10Gb/s")
        bandwidth, requests = _BANDWIDTH.fullmatch(part), _REQUESTS.fullmatch(part)
        if part in DISKS:
            disks.append(DISKS[part])
        elif bandwidth is not None and float(bandwidth[1]) > 0:
            base = 1024 if bandwidth[3] else 1000
            disks.append(Disk(bytes_per_s=float(bandwidth[1]) * base ** _POWERS[bandwidth[2]]))
        elif requests is not None and float(requests[1]) > 0:
            rate = float(requests[1]) * (1000 if requests[2] else 1)
            last = disks[-1] if disks else None
            if last is not None and last.name is None and last.requests_per_s is None:
                disks[-1] = Disk(bytes_per_s=last.bytes_per_s, requests_per_s=rate)
            else:
                disks.append(Disk(requests_per_s=rate))
        else:
            raise UsageError(f"--disk {part!r} is no storage", hint=did_you_mean(part, DISKS, otherwise=_DISK_HINT))
    if not disks:
        raise UsageError(f"--disk {text!r} names no storage", hint=_DISK_HINT)
    return tuple(disks)


def parse_memory(text: str) -> int:
    """``'64GB'``, or bytes -> bytes, as memory is sold: a GB has 1024³ of them.

    Raises:
        UsageError: not a size.
    """
    found = _SIZE.fullmatch(text.strip().lower())
    size = float(found[1]) * 1024 ** _POWERS[found[2]] if found else float(text) if text.strip().isdecimal() else 0.0
    if found is None and size < _LEAST_PLAIN:
        size = 0.0  # 64 are meant as gigabytes, and are none
    if not 1 <= size < 2**60:
        raise UsageError(f"--memory {text!r} is no size", hint="write it as 64GB")
    return int(size)


def question_text(question: Question) -> str:
    """``'16 cores, 500 MB/s'``; of one that asks nothing ``'as it is'``."""
    parts = []
    if question.ranks is not None:
        parts.append(f"{question.ranks} rank{'s' * (question.ranks != 1)}")
    if question.cores is not None:
        parts.append(f"{question.cores:g} core{'s' * (question.cores != 1)}")
    if question.workers is not None:
        parts.append(f"{question.workers or 'no'} worker{'s' * (question.workers != 1)}")
    if question.device is not None:
        parts.append(f"accelerator {question.device}")
    if question.disk is not None:
        parts.append(disk_text(question.disk))
    if question.memory_bytes is not None:
        parts.append(f"{format_bytes(question.memory_bytes)} of memory")
    if question.image_size is not None:
        parts.append(f"crops of {question.image_size} px")
    if question.shorter_edge is not None:
        parts.append(f"images with a shorter edge of {question.shorter_edge} px")
    if question.transforms is not None:
        parts.append(f"images augmented {'on the device' if question.transforms == DEVICE else 'in workers'}")
    return ", ".join(parts) or "as it is"


def limit_words(name: str) -> str:
    """What sets the pace, in words."""
    return "handing over" if name == HAND_OVER else name


def disk_text(disk: Disk) -> str:
    """``'500 MB/s and 8,000 reads/s'``."""
    if disk.name is not None:
        return disk.name
    parts = [] if disk.bytes_per_s is None else [f"{disk.bytes_per_s / _MB:,.0f} MB/s"]
    parts += [] if disk.requests_per_s is None else [format_rate(disk.requests_per_s, " reads/s")]
    return " and ".join(parts)


def _listed(option: str, text: str | None, read: Callable[[str], T]) -> tuple[T, ...]:
    """Each value once, in the order in which they were written.

    Raises:
        UsageError: there is none.
    """
    if text is None:
        return ()
    values = tuple(dict.fromkeys(read(part.strip()) for part in text.split(",") if part.strip()))
    if not values:
        raise UsageError(f"{option} {text!r} names no value", hint=f"write {option} with values and commas between")
    return values


def _number(option: str, text: str, least: float, most: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not least <= value <= most:
        raise UsageError(f"{option} {text!r} is no number from {least:g} to {most:g}", hint=f"write {option} 8")
    return value


def _whole(option: str, text: str, least: int, most: int) -> int:
    if not text.isdecimal() or not least <= int(text) <= most:
        raise UsageError(f"{option} {text!r} is no whole number from {least} to {most}",
                         hint=f"write {option} {max(least, 8)}")  # fmt: skip
    return int(text)
