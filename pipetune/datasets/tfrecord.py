"""TFRecord files of ``tf.train.Example`` with an encoded image and a label in each.

Checksums are not looked at: an image that is damaged does not decode. Sources: TensorFlow's ``record_reader.h`` and
``example.proto``, protocol buffers' wire format. Labels are taken as they are: those of TensorFlow's ImageNet scripts
begin at 1, so that class 0 has no images. Where no record has a label all images are one class.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator

from pipetune.datasets.shard_members import Found, Member, Problems, scanned, too_large

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
#: The lists of a feature (``example.proto``).
_TEXTS, _FLOATS, _INTEGERS = 1, 2, 3
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def members_of_tfrecord(shard: str) -> Found:
    """The images of a TFRecord file."""

    def scan(fd: int, size: int, members: list[Member], problems: Problems) -> None:
        at = number = 0
        while at < size:
            head = os.pread(fd, _HEAD.size, at)
            length = _HEAD.unpack(head)[0] if len(head) == _HEAD.size else size
            start = at + _HEAD.size
            if start + length + _FOOT > size:
                raise ValueError(f"cut off in the record at byte {at}" if at else "not a TFRecord file")
            if length > _MOST_BYTES:
                problems.add(f"{shard}/{number}", too_large(length) or "too large")
            else:
                _take(fd, shard, number, start, length, members, problems)
            number += 1
            at = start + length + _FOOT

    return scanned(shard, scan)


def _take(fd: int, shard: str, number: int, start: int, length: int, members: list[Member], problems: Problems) -> None:
    place = f"{shard}/{number}"
    try:
        image, label, other = _image_and_label(_Message(fd, start, length))
    except (ValueError, IndexError):
        problems.add(place, "no tf.train.Example")
        return
    if image is None:
        problems.add(place, f"has none of {', '.join(_IMAGES)}")
    elif label is not None and label < 0:
        problems.add(place, f"a label of {label}, which is no class")
    elif label is None and other is not None:
        problems.add(place, other)
    elif (reason := too_large(image[1] - image[0])) is not None:
        problems.add(place, reason)
    else:
        known = None if label is None else str(label)
        members.append(Member(shard, str(number), start + image[0], image[1] - image[0], known))


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


def _image_and_label(message: _Message) -> tuple[tuple[int, int] | None, int | None, str | None]:
    """Where the image begins and ends in a message, the label, and what is wrong with one that is no integer.

    Raises:
        ValueError, IndexError: it is no ``tf.train.Example``.
    """
    images: dict[str, tuple[int, int]] = {}
    labels: dict[str, int] = {}
    other: str | None = None
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
                    images.update((name, (a, b)) for _, a, b in _fields(message, list_start, list_end))
                elif kind == _INTEGERS and name in _LABELS:
                    label = _first_integer(message, list_start, list_end)
                    if label is not None:
                        labels[name] = label
                elif kind in (_TEXTS, _FLOATS) and name in _LABELS:
                    other = f"its {name!r} holds {'text' if kind == _TEXTS else 'floats'}, and labels are integers"
    image = next((images[name] for name in _IMAGES if name in images), None)
    return image, next((labels[name] for name in _LABELS if name in labels), None), other


def _first_integer(message: _Message, start: int, end: int) -> int | None:
    for _, a, b in _fields(message, start, end):
        if b > a:
            value, _ = _varint(message, a, b)
            return value - (1 << 64) if value >> 63 else value
    return None


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
