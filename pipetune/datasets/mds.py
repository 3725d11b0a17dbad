"""MDS shards of MosaicML's streaming library, with a column of encoded images and one of labels.

Which columns there are is in ``index.json`` beside the shards, or else in the shard itself. Source: streaming's
``base/format/mds``; see :mod:`pipetune.packing.formats.mds` for the layout.
"""

from __future__ import annotations

import json
import os
import struct
import sys
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

from pipetune.datasets.shard_members import Found, Member, Problems, scanned, too_large
from pipetune.store.regular import read_whole

#: Encodings whose bytes are an image file. ``pil`` is pixels.
_IMAGES = ("jpeg", "png", "bytes", "jpegarray")
_INTEGERS = {"int": 8, "int8": 1, "int16": 2, "int32": 4, "int64": 8, "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8}
#: Names of columns, the likeliest first, where several could be it.
_IMAGE_NAMES, _LABEL_NAMES = ("image", "jpg", "x"), ("label", "class", "cls", "y")
_MOST_SAMPLES = 1 << 26
_MOST_INDEX_BYTES = 64 << 20
_MOST_COLUMN = 1 << 32
#: The description in a shard, at most (bytes).
_MOST_CONFIG = 1 << 16


@dataclass(frozen=True, slots=True)
class _Columns:
    sizes: tuple[int | None, ...]
    """In the order in which they are stored; ``None``: each sample says it."""
    image: int
    label: int | None
    label_bytes: int
    label_signed: bool


def members_of_mds(shard: str) -> Found:
    """The images of a shard."""

    def scan(fd: int, size: int, members: list[Member], problems: Problems) -> None:
        try:
            _scan(shard, fd, size, members, problems)
        except (struct.error, KeyError, IndexError, OverflowError, TypeError, RecursionError) as error:
            raise ValueError("not an MDS shard") from error

    return scanned(shard, scan)


def _scan(shard: str, fd: int, size: int, members: list[Member], problems: Problems) -> None:
    (count,) = struct.unpack("<I", os.pread(fd, 4, 0))
    if not 0 < count <= _MOST_SAMPLES or 4 * (count + 2) > size:
        raise ValueError("not an MDS shard")
    offsets = array("I", os.pread(fd, 4 * (count + 1), 4))
    if sys.byteorder == "big":
        offsets.byteswap()
    described = os.pread(fd, min(_MOST_CONFIG, max(0, offsets[0] - 4 * (count + 2))), 4 * (count + 2))
    columns = _columns_of(shard, described)
    for number, (start, end) in enumerate(pairwise(offsets)):
        if not start <= end <= size:
            raise ValueError(f"sample {number} lies outside of the file")
        _take(fd, shard, number, start, end, columns, members, problems)


def _take(
    fd: int, shard: str, number: int, start: int, end: int, columns: _Columns, members: list[Member],
    problems: Problems,
) -> None:  # fmt: skip
    open_sizes = sum(size is None for size in columns.sizes)
    told = iter(struct.unpack(f"<{open_sizes}I", os.pread(fd, 4 * open_sizes, start)))
    sizes = [next(told) if size is None else size for size in columns.sizes]
    at = start + 4 * open_sizes
    starts = [at + sum(sizes[:place]) for place in range(len(sizes))]
    if starts[-1] + sizes[-1] > end:
        raise ValueError(f"sample {number} is longer than its place")
    label = None
    if columns.label is not None:
        raw = os.pread(fd, columns.label_bytes, starts[columns.label])
        value = int.from_bytes(raw, "little", signed=columns.label_signed)
        if value < 0:
            problems.add(f"{shard}/{number}", f"a label of {value}, which is no class")
            return
        label = str(value)
    reason = too_large(sizes[columns.image])
    if reason is not None:
        problems.add(f"{shard}/{number}", reason)
        return
    members.append(Member(shard, str(number), starts[columns.image], sizes[columns.image], label))


def _columns_of(shard: str, own: bytes) -> _Columns:
    """The columns of a shard.

    Raises:
        ValueError: there is no column of images, they are compressed, or it is not clear which column has the labels.
    """
    described = _described(shard, own)
    if described.get("compression"):
        raise ValueError("a compressed shard, whose images cannot be read one by one")
    names, encodings, sizes = (described[f"column_{name}"] for name in ("names", "encodings", "sizes"))
    if not len(names) == len(encodings) == len(sizes) or not all(
        size is None or (isinstance(size, int) and 0 <= size <= _MOST_COLUMN) for size in sizes
    ):
        raise ValueError("not an MDS shard")
    images = [place for place, encoding in enumerate(encodings) if encoding in _IMAGES]
    image = next(iter([*_called(names, images, _IMAGE_NAMES), *images]), None)
    if image is None:
        raise ValueError(f"no column of encoded images among {', '.join(map(str, encodings))}")
    label = _label_of(names, encodings)
    return _Columns(
        tuple(sizes), image, label, 0 if label is None else _INTEGERS[encodings[label]],
        label is not None and not encodings[label].startswith("uint"),
    )  # fmt: skip


def _described(shard: str, own: bytes) -> Mapping[str, Any]:
    folder, base = os.path.split(shard)
    index = os.path.join(folder, "index.json")
    told = _index_of(index, _changed_ns(index)).get(base)
    if told is not None:
        return told
    found = json.JSONDecoder().raw_decode(own.decode("utf-8", "replace"))[0]
    if not isinstance(found, dict):
        raise ValueError("not an MDS shard")
    return found


def _changed_ns(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


@lru_cache(maxsize=1)
def _index_of(path: str, changed_ns: int) -> Mapping[str, Mapping[str, Any]]:
    """What ``index.json`` says of each shard; it is read once for all of them, unless it changes."""
    try:
        index = json.loads(read_whole(path, _MOST_INDEX_BYTES))
        return {str(one["raw_data"]["basename"]): dict(one) for one in index["shards"]}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}


def _label_of(names: list[str], encodings: list[str]) -> int | None:
    """The column of labels: one with a usual name, or the only one of integers; ``None``: there is no such column.

    Raises:
        ValueError: it is not of integers, or several may be it. A wrong one would be trained on without an error.
    """
    integers = [place for place, encoding in enumerate(encodings) if encoding in _INTEGERS]
    for place in _called(names, integers, _LABEL_NAMES):
        return place
    for place in _called(names, range(len(names)), _LABEL_NAMES):
        raise ValueError(f"its column {names[place]!r} holds {encodings[place]}, and labels are integers")
    if len(integers) > 1:
        found = ", ".join(str(names[place]) for place in integers)
        raise ValueError(f"any of its columns {found} may be the label: none is called {', '.join(_LABEL_NAMES)}")
    return next(iter(integers), None)


def _called(names: list[str], places: Sequence[int], likely: tuple[str, ...]) -> list[int]:
    """Those of the columns that have one of these names, the likeliest first."""
    return [place for name in likely for place in places if names[place] == name]
