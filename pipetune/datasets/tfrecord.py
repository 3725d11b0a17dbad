"""TFRecord files of ``tf.train.Example`` with an encoded image and a label in each.

The checksum of each record's length is compared, which recognises the format, too; those of records are not: an image
that is damaged does not decode. Sources: TensorFlow's ``record_reader.h`` and ``example.proto``, protocol buffers' wire
format. Labels are taken as they are: those of TensorFlow's ImageNet scripts begin at 1, so that class 0 has no images.
Where no record has a label all images are one class.
"""

from __future__ import annotations

import itertools
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from pipetune.datasets.labels import LabelError, check_class_number
from pipetune.datasets.shard_members import Found, Member, Tally, scanned, too_large

_IMAGES = ("image/encoded", "image", "image_raw", "jpeg")
_LABELS = ("image/class/label", "label", "class")
_HEAD, _FOOT = struct.Struct("<QI"), 4
#: Larger records hold no image that is used, and a hostile length would ask for all memory.
_MOST_BYTES = 256 << 20
#: A message is read in pieces of this size, where its fields are: most of it is the image.
_PIECE = 1024
#: A longer name of a feature is none that is looked for.
_LONGEST_NAME = 256
#: A message with more fields is none of an image's.
_MOST_FIELDS = 4096
#: Names of features that are not read, of which so many are kept.
_MAX_UNREAD = 32
#: So many labels of a record are read: more than one is none that is used.
_MAX_LABELS = 64
#: The lists of a feature (``example.proto``).
_TEXTS, _FLOATS, _INTEGERS = 1, 2, 3
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def members_of_tfrecord(shard: str) -> Found:
    """The images of a TFRecord file."""

    def scan(fd: int, size: int, members: list[Member], tally: Tally) -> None:
        at = number = 0
        while at < size:
            head = os.pread(fd, _HEAD.size, at)
            if not _is_head(head):
                raise ValueError(f"no record at byte {at}" if at else "not a TFRecord file")
            length, start = _HEAD.unpack(head)[0], at + _HEAD.size
            if start + length + _FOOT > size:
                raise ValueError(f"cut off in the record at byte {at}")
            tally.members += 1
            if length > _MOST_BYTES:
                tally.reject(f"{shard}/{number}", too_large(length) or "too large")
            else:
                _take(fd, shard, number, start, length, members, tally)
            number += 1
            at = start + length + _FOOT

    return scanned(shard, scan)


def begins_tfrecord(path: str) -> bool:
    """Whether a file begins with the head of a record, by the checksum of its length."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return _is_head(os.pread(fd, _HEAD.size, 0))
    except OSError:
        return False
    finally:
        os.close(fd)


def _is_head(head: bytes) -> bool:
    return len(head) == _HEAD.size and mask_checksum(checksum(head[:8])) == _HEAD.unpack(head)[1]


def checksum(data: bytes) -> int:
    """CRC-32C (RFC 3720, appendix B.4) of a few bytes."""
    table, value = _checksum_table(), 0xFFFFFFFF
    for byte in data:
        value = table[(value ^ byte) & 0xFF] ^ (value >> 8)
    return value ^ 0xFFFFFFFF


@cache
def _checksum_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return tuple(table)


def mask_checksum(value: int) -> int:
    """A checksum as TFRecord files store it."""
    return ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _take(fd: int, shard: str, number: int, start: int, length: int, members: list[Member], tally: Tally) -> None:
    place = f"{shard}/{number}"
    try:
        example = _parse_example(_Message(fd, start, length))
    except (ValueError, IndexError):
        tally.reject(place, "no tf.train.Example")
        return
    tally.labels += example.has_label
    try:
        label = example.choose_label()
    except LabelError as error:
        tally.unmatched += 1
        tally.reject(place, str(error))
        return
    name = next((name for name in _IMAGES if name in example.images), None)
    if name is None or len(example.images[name]) != 1:
        count = 0 if name is None else len(example.images[name])
        reason = f"has {count} images in {name!r}" if count else f"has none of {', '.join(_IMAGES)}"
        tally.unmatched += example.has_label
        tally.reject(place, reason)
        return
    ((first, end),) = example.images[name]
    if not example.has_label and len(tally.unread_columns) < _MAX_UNREAD:
        tally.unread_columns.update(example.unread)
    if (fault := too_large(end - first) if end > first else "is empty") is not None:
        tally.reject(place, fault)
    else:
        members.append(Member(shard, str(number), start + first, end - first, label))


@dataclass(frozen=True, slots=True)
class _Example:
    """The images and labels of a record."""

    images: dict[str, list[tuple[int, int]]]
    """Name of a feature -> (first byte, end) of each of its values."""
    labels: dict[str, list[int]]
    faults: dict[str, str]
    """Name of a label's feature -> what else it holds."""
    unread: list[str]
    """Names of other features of integers, one of which may be the label."""

    @property
    def has_label(self) -> bool:
        """There is a feature with the name of a label, and something in it."""
        return bool(self.labels or self.faults)

    def choose_label(self) -> int | None:
        """The class, or ``None``: no feature of a label is there.

        Raises:
            LabelError: the feature holds something else, or several numbers: one-hot, or several classes.
        """
        name = next((name for name in _LABELS if name in self.labels or name in self.faults), None)
        if name is None:
            return None
        if name in self.faults:
            raise LabelError(f"its {name!r} holds {self.faults[name]}, and labels are integers")
        if len(self.labels[name]) > 1:
            count = len(self.labels[name])
            raise LabelError(f"has {count} labels in {name!r}, and which one is the class is not known")
        return check_class_number(self.labels[name][0])


class _Message:
    """Bytes of a record, of which only the pieces are read that are asked for."""

    def __init__(self, fd: int, start: int, length: int) -> None:
        self._fd, self._start, self.length = fd, start, length
        self._piece, self._at = b"", 0

    def __getitem__(self, at: int) -> int:
        if not self._at <= at < self._at + len(self._piece):
            self._piece, self._at = self.part(at, min(at + _PIECE, self.length)), at
        return self._piece[at - self._at]

    def part(self, start: int, end: int) -> bytes:
        """A part of it."""
        return os.pread(self._fd, end - start, self._start + start)


def _parse_example(message: _Message) -> _Example:
    """The images and labels of a message.

    Raises:
        ValueError, IndexError: the message is no ``tf.train.Example``.
    """
    example = _Example({}, {}, {}, [])
    for number, start, end in _fields(message, 0, message.length):
        if number != 1:
            continue
        for _, entry, entry_end in _fields(message, start, end):
            name, value = "", (0, 0)
            for part, part_start, part_end in _fields(message, entry, entry_end):
                if part == 1:
                    name = message.part(part_start, min(part_end, part_start + _LONGEST_NAME)).decode("utf-8")
                elif part == 2:
                    value = part_start, part_end
            for kind, list_start, list_end in _fields(message, *value):
                if kind == _TEXTS and name in _IMAGES:
                    places = [(first, last) for _, first, last in _fields(message, list_start, list_end)]
                    example.images.setdefault(name, []).extend(places)
                elif kind == _INTEGERS and name in _LABELS:
                    if numbers := list(_integers(message, list_start, list_end)):
                        example.labels.setdefault(name, []).extend(numbers)
                elif kind == _INTEGERS and len(example.unread) < _MAX_UNREAD:
                    example.unread.append(name)
                elif kind in (_TEXTS, _FLOATS) and name in _LABELS:
                    example.faults[name] = "text" if kind == _TEXTS else "floats"
    return example


def _integers(message: _Message, start: int, end: int) -> Iterator[int]:
    """The first integers of a list, packed or not."""
    for _, first, last in itertools.islice(_fields(message, start, end), _MAX_LABELS):
        at = first
        while at < min(last, first + _MAX_LABELS):
            value, at = _varint(message, at, last)
            yield value - (1 << 64) if value >> 63 else value


def _fields(message: _Message, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """``(number, start, end)`` of each field of a message; of a number, its bytes.

    Raises:
        ValueError: these are no fields.
        IndexError: the message ends before they do.
    """
    for _ in range(_MOST_FIELDS):
        if at >= end:
            return
        tag, at = _varint(message, at, end)
        kind = tag & 7
        if kind == _BYTES:
            length, at = _varint(message, at, end)
        elif kind == _VARINT:
            length = _varint(message, at, end)[1] - at
        elif kind in (_FIXED64, _FIXED32):
            length = 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(f"a field of kind {kind}")
        if at + length > end:
            raise ValueError("a field that is longer than its message")
        yield tag >> 3, at, at + length
        at += length
    raise ValueError("too many fields")


def _varint(message: _Message, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= end or shift > 63:
            raise ValueError("a number without an end")
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
