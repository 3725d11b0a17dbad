"""What is asked of a pack, checked before anything is read. Pure."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

from pipetune.datasets.usable_image import MAX_FILE_BYTES
from pipetune.errors import UsageError
from pipetune.units import format_bytes

AS_IS, LOSSLESS, SHORTER_EDGE, LONGER_EDGE = "as-is", "lossless", "shorter-edge", "longer-edge"
#: How finely colours are stored, as its name says of libjpeg's sampling; ``keep``: as in the source.
SAMPLINGS = {"keep": 0, "420": 420, "422": 422, "444": 444}
_LEAST_EDGE, _MOST_EDGE = 8, 16384
_LEAST_SHARD = 1 << 20
#: Packs that are made of a source at once.
_MOST_SIZES = 8
#: A shard may become larger than it is asked for: the prediction may be wrong, and its images larger than others.
_OF_LARGEST = 0.7
_PER_CLASS = re.compile(r"([1-9][0-9]*)-per-class")
_PART = re.compile(r"([0-9]+)/([0-9]+)")
VERIFY = ("sample", "all", "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pixels:
    """What is done to each image."""

    mode: str = AS_IS
    edge: int | None = None
    """Of the two modes with an edge (px)."""
    quality: int = 90
    """1..100, as libjpeg has it, of what is encoded anew."""
    subsampling: str = "keep"
    upright: bool = False
    """Pixels are turned as the orientation tag says, and the tag goes."""
    enlarge: bool = False
    """Smaller images are made larger."""
    raw: bool = False
    """They are stored as they are decoded: upright, and the square in the middle of them, of the shorter edge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackOptions:
    """A pack."""

    source: str
    out: Path
    format: str = "webdataset"
    pixels: Pixels = Pixels()
    sizes: tuple[tuple[str, Pixels], ...] = ()
    """Several packs, each in a folder of its own: its name, and what is done to its images; ``()``: one."""
    shard_bytes: int = 256 << 20
    shuffle: int | None = 0
    """Seed of the order; ``None``: class by class, as the folder is."""
    validation: str | None = None
    """``0.02``, or ``50-per-class``, of what becomes a pack of its own."""
    min_per_class: int = 1
    """Classes with fewer images are left out."""
    threads: int = 1
    part: tuple[int, int] | None = None
    """This call's number (from 0 on) of so many, which share the shards."""
    resume: bool = False
    verify: str = "sample"
    strict: bool = False
    """An image that cannot be packed is a failure."""


def pixels_of(
    *, shorter_edge: int | None, longer_edge: int | None, lossless: bool, as_is: bool, quality: int | None,
    subsampling: str | None, upright: bool, enlarge: bool, raw: bool,
) -> Pixels:  # fmt: skip
    """What is done to each image, from the command's options.

    Args:
        raw: the format holds pixels.

    Raises:
        UsageError: two that contradict each other, or a value out of range.
    """
    given = {
        f"--{SHORTER_EDGE}": shorter_edge is not None, f"--{LONGER_EDGE}": longer_edge is not None,
        f"--{LOSSLESS}": lossless, f"--{AS_IS}": as_is,
    }  # fmt: skip
    chosen = [name for name, there in given.items() if there]
    if len(chosen) > 1:
        raise UsageError(f"{' and '.join(chosen)} contradict each other", hint="name one of them")
    mode = chosen[0].removeprefix("--") if chosen else AS_IS
    edge = shorter_edge if shorter_edge is not None else longer_edge
    if edge is not None and not _LEAST_EDGE <= edge <= _MOST_EDGE:
        raise UsageError(f"--{mode} {edge} is no edge of an image", hint=f"name {_LEAST_EDGE} to {_MOST_EDGE} pixels")
    if raw:
        _check_raw(mode, edge, quality, subsampling)
    if edge is None:
        for name, there in (("--quality", quality is not None), ("--subsampling", subsampling is not None),
                            ("--enlarge", enlarge)):  # fmt: skip
            if there and not (name == "--quality" and upright):
                raise UsageError(
                    f"{name} is for images that are made smaller, and {mode} keeps their pixels",
                    hint=f"omit it, or add --{SHORTER_EDGE} 256",
                )
    if quality is not None and not 1 <= quality <= 100:
        raise UsageError(f"--quality {quality} is none of JPEG", hint="name 1 to 100; 90 is usual")
    if subsampling is not None and subsampling not in SAMPLINGS:
        raise UsageError(f"--subsampling {subsampling!r} is unknown", hint=f"one of {', '.join(SAMPLINGS)}")
    return Pixels(
        mode=mode, edge=edge, quality=90 if quality is None else quality, subsampling=subsampling or "keep",
        upright=upright, enlarge=enlarge, raw=raw,
    )  # fmt: skip


def what_is_done(
    *, sizes: str | None, shorter_edge: int | None, longer_edge: int | None, lossless: bool, as_is: bool,
    quality: int | None, subsampling: str | None, upright: bool, enlarge: bool, raw: bool,
) -> tuple[Pixels, tuple[tuple[str, Pixels], ...]]:  # fmt: skip
    """:attr:`PackOptions.pixels` and :attr:`PackOptions.sizes`, from the command's options.

    Raises:
        UsageError: two that contradict each other, or a value out of range.
    """
    if sizes is None:
        return pixels_of(
            shorter_edge=shorter_edge, longer_edge=longer_edge, lossless=lossless, as_is=as_is, quality=quality,
            subsampling=subsampling, upright=upright, enlarge=enlarge, raw=raw,
        ), ()  # fmt: skip
    given = {
        f"--{SHORTER_EDGE}": shorter_edge is not None, f"--{LONGER_EDGE}": longer_edge is not None,
        f"--{LOSSLESS}": lossless, f"--{AS_IS}": as_is,
    }  # fmt: skip
    for name, there in given.items():
        if there:
            raise UsageError(f"{name} and --sizes contradict each other", hint="name one of them")
    return Pixels(), sizes_of(
        sizes, quality=quality, subsampling=subsampling, upright=upright, enlarge=enlarge, raw=raw
    )  # fmt: skip


def sizes_of(
    text: str, *, quality: int | None, subsampling: str | None, upright: bool, enlarge: bool, raw: bool
) -> tuple[tuple[str, Pixels], ...]:
    """``'160,352,as-is'`` -> what is done to the images of each pack, under its name.

    Raises:
        UsageError: it is no such list, or an option has no effect on any of them.
    """
    names = [str(int(name)) if name.strip().isdecimal() else name.strip() for name in text.split(",")]
    edges = any(name.isdecimal() for name in names)
    for option, there in (("--quality", quality is not None), ("--subsampling", subsampling is not None),
                          ("--enlarge", enlarge)):  # fmt: skip
        if there and not edges:
            raise UsageError(f"{option} is for images that are made smaller, and --sizes {text} keeps their pixels",
                             hint="omit it")  # fmt: skip
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"--sizes names {twice!r} twice", hint="name each once")
    if len(names) > _MOST_SIZES:
        raise UsageError(f"--sizes names {len(names)} packs", hint=f"name at most {_MOST_SIZES}, and then the others")
    found = []
    for name in names:
        if not name.isdecimal() and name not in (AS_IS, LOSSLESS):
            raise UsageError(f"--sizes {text!r}: {name!r} is none", hint="write it as --sizes 160,352,as-is")
        edge = int(name) if name.isdecimal() else None
        if raw and edge is None:
            raise UsageError(f"--format raw stores pixels of one size, and {name} in --sizes gives several",
                             hint="omit it")  # fmt: skip
        found.append((name, pixels_of(
            shorter_edge=edge, longer_edge=None, lossless=name == LOSSLESS, as_is=name == AS_IS,
            quality=quality if edge is not None else None, subsampling=subsampling if edge is not None else None,
            upright=upright, enlarge=enlarge and edge is not None, raw=raw,
        )))  # fmt: skip
    return tuple(found)


def _check_raw(mode: str, edge: int | None, quality: int | None, subsampling: str | None) -> None:
    if mode != SHORTER_EDGE:
        raise UsageError(
            f"--format raw stores pixels of one size, and --{mode} gives images of several",
            hint=f"add --{SHORTER_EDGE} 256: the square in the middle of each image is stored",
        )
    if edge is not None and 3 * edge * edge > MAX_FILE_BYTES:
        raise UsageError(
            f"--{SHORTER_EDGE} {edge} gives images of {format_bytes(3 * edge * edge)}, more than a loader reads",
            hint=f"name at most {math.isqrt(MAX_FILE_BYTES // 3)}",
        )
    for name, there in (("--quality", quality is not None), ("--subsampling", subsampling is not None)):
        if there:
            raise UsageError(f"{name} is for JPEGs, and --format raw stores pixels", hint="omit it")


def check(options: PackOptions) -> None:
    """Refuse what makes no sense.

    Raises:
        UsageError: a value out of range.
        MissingPackageError: the format needs a package that is not there.
    """
    from pipetune.packing.formats.table import format_of

    format_ = format_of(options.format)
    format_.require()
    if options.shard_bytes > _OF_LARGEST * format_.largest_shard:
        raise UsageError(
            f"--shard-size {format_bytes(options.shard_bytes)} is more than a shard of {format_.name} holds",
            hint=f"name at most {format_bytes(int(_OF_LARGEST * format_.largest_shard))}",
        )
    if options.shard_bytes < _LEAST_SHARD:
        raise UsageError(
            f"--shard-size {format_bytes(options.shard_bytes)} is too small for a shard",
            hint="256MB is usual; file systems and readers suffer from many small files",
        )
    if options.threads < 1:
        raise UsageError(f"--threads {options.threads} does nothing", hint="name 1 or more")
    if options.min_per_class < 1:
        raise UsageError(f"--min-per-class {options.min_per_class} leaves nothing out", hint="name 1 or more")
    if options.verify not in VERIFY:
        raise UsageError(f"--verify {options.verify!r} is unknown", hint=f"one of {', '.join(VERIFY)}")
    validation_of(options.validation)


def validation_of(text: str | None) -> tuple[float, int]:
    """``(share, number per class)`` of the images that go to validation; one of them is 0.

    Raises:
        UsageError: it is neither.
    """
    if text is None:
        return 0.0, 0
    found = _PER_CLASS.fullmatch(text)
    if found is not None:
        return 0.0, int(found[1])
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0 < share < 1:
        raise UsageError(f"--validation {text!r} is no share", hint="write it as 0.02, or as 50-per-class")
    return share, 0


def seed_of(text: str) -> int | None:
    """``'7'`` -> 7; ``'none'`` -> ``None``.

    Raises:
        UsageError: it is neither.
    """
    if text.lower() == "none":
        return None
    if not text.isdecimal():
        raise UsageError(f"--shuffle {text!r} is no seed", hint="write a number, or none")
    return int(text)


def part_of(text: str | None) -> tuple[int, int] | None:
    """``'2/8'`` -> (1, 8): the second of eight.

    Raises:
        UsageError: it is none.
    """
    if text is None:
        return None
    found = _PART.fullmatch(text)
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise UsageError(f"--part {text!r} is none", hint="write it as 1/8 to 8/8")
    return int(found[1]) - 1, int(found[2])
