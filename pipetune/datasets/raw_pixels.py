"""Images that are stored as pixels: ``NAME.pixels.npy`` with ``NAME.labels.npy`` beside it.

Both are arrays as ``numpy.load`` reads them: uint8 ``[images, height, width, 3]``, and int64 ``[images]``. See
:mod:`pipetune.packing.formats.raw`; source of the layout: numpy's ``lib/format.py``.
"""

from __future__ import annotations

import ast
import os
import sys
from array import array

from pipetune.datasets.image_header import MAX_PIXELS
from pipetune.datasets.labels import LabelError, check_class_number
from pipetune.datasets.shard_members import Found, Member, Tally, open_shard, scanned, too_large

PIXELS, LABELS = ".pixels.npy", ".labels.npy"
MAGIC = b"\x93NUMPY"
#: Of the head, before its description: magic number, version, length of the description.
FIXED = len(MAGIC) + 2 + 2
_LONGEST_HEAD = 1 << 12
_MOST_IMAGES = 1 << 32


def members_of_pixels(shard: str) -> Found:
    """The images of a shard."""

    def scan(fd: int, size: int, members: list[Member], tally: Tally) -> None:
        kind, shape, start = read_head(fd)
        if kind == "|u1" and len(shape) == 4 and shape[0] == 0:
            return  # every image of this shard was rejected
        if kind != "|u1" or len(shape) != 4 or shape[3] != 3 or 0 in shape:
            raise ValueError(f"is an array {list(shape)} of {kind}, and not pixels: uint8 [images, height, width, 3]")
        count, height, width, _ = shape
        one = 3 * height * width
        if height * width > MAX_PIXELS or (reason := too_large(one)) is not None:
            raise ValueError(reason if height * width <= MAX_PIXELS else f"has images of {width} x {height} pixels")
        labels = _labels(shard.removesuffix(PIXELS) + LABELS, count)
        for number in range(min(count, (size - start) // one)):
            tally.members += 1
            tally.labels += 1
            try:
                label = check_class_number(labels[number])
            except LabelError as error:
                tally.unmatched += 1
                tally.reject(f"{shard}/{number}", str(error))
                continue
            members.append(Member(shard, str(number), start + number * one, one, label, (width, height)))
        if start + count * one > size:
            raise ValueError(f"cut off: {size:,} of {start + count * one:,} bytes")

    return scanned(shard, scan)


def read_head(fd: int) -> tuple[str, tuple[int, ...], int]:
    """Type, shape and first byte of an array.

    Raises:
        ValueError: it is none, or not in the order of its rows.
    """
    head = os.pread(fd, FIXED + _LONGEST_HEAD, 0)
    if not head.startswith(MAGIC) or head[6:7] not in (b"\x01", b"\x02"):
        raise ValueError("not an array of numpy")
    wide = 2 if head[6] == 1 else 4
    start = len(MAGIC) + 2 + wide
    length = int.from_bytes(head[start - wide : start], "little")
    try:
        told = ast.literal_eval(head[start : start + length].decode("latin-1").strip())
        kind, shape, columns = told["descr"], told["shape"], told["fortran_order"]
    except (ValueError, SyntaxError, KeyError, TypeError, MemoryError, RecursionError) as error:
        raise ValueError("not an array of numpy") from error
    plain = isinstance(kind, str) and isinstance(shape, tuple) and not columns
    if not plain or not all(type(edge) is int and 0 <= edge < _MOST_IMAGES for edge in shape):
        raise ValueError("an array of another kind")
    return kind, shape, start + length


def _labels(path: str, count: int) -> array[int]:
    """The labels of a shard.

    Raises:
        ValueError: they are not there, or of other images.
    """
    try:
        fd, size = open_shard(path)
    except OSError as error:
        raise ValueError(f"its labels cannot be read: {error.strerror}: {os.path.basename(path)}") from error
    try:
        kind, shape, start = read_head(fd)
        if kind != "<i8" or shape != (count,):
            raise ValueError(f"its labels are an array {list(shape)} of {kind}, and not int64 [{count}]")
        if start + 8 * count > size:
            raise ValueError("its labels are cut off")
        found = array("q", os.pread(fd, 8 * count, start))
    finally:
        os.close(fd)
    if sys.byteorder == "big":
        found.byteswap()
    return found
