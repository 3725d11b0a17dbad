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
from typing import Any, NamedTuple

from pipetune.datasets.labels import LabelError, check_class_number
from pipetune.datasets.shard_members import Found, Member, Tally, scanned, too_large
from pipetune.store.regular import read_whole

#: Encodings whose bytes are an image file. ``pil`` is pixels; ``jpeg_array`` and lists hold several images.
_IMAGES, _BYTES = ("jpeg", "png"), "bytes"
_INTEGERS = {"int": 8, "int8": 1, "int16": 2, "int32": 4, "int64": 8, "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8}
#: Names of columns, the likeliest first, where several could be it. No other column of integers is taken for labels:
#: numbers, sizes and years of photographs are integers, too.
_IMAGE_NAMES, _LABEL_NAMES = ("image", "img", "jpg", "jpeg", "png", "x"), ("label", "class", "cls", "y", "target")
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
    unread: tuple[str, ...]
    """Names of the other columns."""


def members_of_mds(shard: str) -> Found:
    """The images of a shard."""

    def scan(fd: int, size: int, members: list[Member], tally: Tally) -> None:
        try:
            _scan(shard, fd, size, members, tally)
        except (struct.error, KeyError, IndexError, OverflowError, TypeError, RecursionError) as error:
            raise ValueError("not an MDS shard") from error

    return scanned(shard, scan)


def _scan(shard: str, fd: int, size: int, members: list[Member], tally: Tally) -> None:
    (count,) = struct.unpack("<I", os.pread(fd, 4, 0))
    if not 0 < count <= _MOST_SAMPLES or 4 * (count + 2) > size:
        raise ValueError("not an MDS shard")
    offsets = array("I", os.pread(fd, 4 * (count + 1), 4))
    if sys.byteorder == "big":
        offsets.byteswap()
    described = os.pread(fd, min(_MOST_CONFIG, max(0, offsets[0] - 4 * (count + 2))), 4 * (count + 2))
    columns = _columns_of(shard, described)
    tally.unread_columns.update(columns.unread)
    for number, (start, end) in enumerate(pairwise(offsets)):
        if not start <= end <= size:
            raise ValueError(f"sample {number} lies outside of the file")
        _take(fd, shard, number, start, end, columns, members, tally)


def _take(
    fd: int, shard: str, number: int, start: int, end: int, columns: _Columns, members: list[Member],
    tally: Tally,
) -> None:  # fmt: skip
    open_sizes = sum(size is None for size in columns.sizes)
    told = iter(struct.unpack(f"<{open_sizes}I", os.pread(fd, 4 * open_sizes, start)))
    sizes = [next(told) if size is None else size for size in columns.sizes]
    at = start + 4 * open_sizes
    starts = [at + sum(sizes[:place]) for place in range(len(sizes))]
    if starts[-1] + sizes[-1] > end:
        raise ValueError(f"sample {number} is longer than its place")
    tally.members += 1
    label = None
    if columns.label is not None:
        tally.labels += 1
        raw = os.pread(fd, columns.label_bytes, starts[columns.label])
        try:
            label = check_class_number(int.from_bytes(raw, "little", signed=columns.label_signed))
        except LabelError as error:
            tally.unmatched += 1
            tally.reject(f"{shard}/{number}", str(error))
            return
    size = sizes[columns.image]
    reason = too_large(size) if size else "is empty"
    if reason is not None:
        tally.reject(f"{shard}/{number}", reason)
        return
    members.append(Member(shard, str(number), starts[columns.image], size, label))


def _columns_of(shard: str, own: bytes) -> _Columns:
    """The columns of a shard.

    Raises:
        ValueError: there is no column of images, several may be it, or the column of labels has no integers.
    """
    described = _described(shard, own)
    names, encodings, sizes = (described[f"column_{name}"] for name in ("names", "encodings", "sizes"))
    if not len(names) == len(encodings) == len(sizes) or not all(
        size is None or (isinstance(size, int) and 0 <= size <= _MOST_COLUMN) for size in sizes
    ):
        raise ValueError("not an MDS shard")
    image = _choose_image(names, encodings)
    label = _choose_label(names, encodings)
    return _Columns(
        tuple(sizes), image, label, 0 if label is None else _INTEGERS[encodings[label]],
        label is not None and not encodings[label].startswith("uint"),
        tuple(str(name) for place, name in enumerate(names) if place not in (image, label)),
    )  # fmt: skip


def _choose_image(names: list[str], encodings: list[str]) -> int:
    """The column of images: one with a usual name, or the only one.

    Raises:
        ValueError: there is none, or several may be it.
    """
    encoded = [place for place, encoding in enumerate(encodings) if encoding in _IMAGES]
    columns = encoded or [place for place, encoding in enumerate(encodings) if encoding == _BYTES]
    usual = _called(names, [place for place in range(len(names)) if encodings[place] in (*_IMAGES, _BYTES)],
                    _IMAGE_NAMES)  # fmt: skip
    if usual or len(columns) == 1:
        return (usual or columns)[0]
    if not columns:
        raise ValueError(f"no column of encoded images among {', '.join(map(str, encodings))}")
    several = ", ".join(str(names[place]) for place in columns)
    raise ValueError(f"any of its columns {several} may be the image: none is called {', '.join(_IMAGE_NAMES)}")


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


def _choose_label(names: list[str], encodings: list[str]) -> int | None:
    """The column of labels, by its name; ``None``: there is no such column.

    Raises:
        ValueError: it is not of integers.
    """
    integers = [place for place, encoding in enumerate(encodings) if encoding in _INTEGERS]
    for place in _called(names, integers, _LABEL_NAMES):
        return place
    for place in _called(names, range(len(names)), _LABEL_NAMES):
        raise ValueError(f"its column {names[place]!r} holds {encodings[place]}, and labels are integers")
    return None


class IndexDifferences(NamedTuple):
    """How the shards in a folder differ from those that its ``index.json`` names; paths."""

    missing: list[str]
    unnamed: list[str]
    """Shards that streaming does not read, because another writer, or an earlier one, has left them there."""


def compare_with_index(folder: str, shards: Sequence[str]) -> IndexDifferences:
    """Compare the shards in a folder with those that ``index.json`` names; without one there are no differences."""
    index = os.path.join(folder, "index.json")
    named = {os.path.join(folder, name) for name in _index_of(index, _changed_ns(index))}
    if not named:
        return IndexDifferences([], [])
    return IndexDifferences(
        [path for path in sorted(named) if not os.path.exists(path)], [path for path in shards if path not in named]
    )


def _called(names: list[str], places: Sequence[int], likely: tuple[str, ...]) -> list[int]:
    """Those of the columns that have one of these names, the likeliest first."""
    return [place for name in likely for place in places if names[place] == name]
