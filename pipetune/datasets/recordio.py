"""RecordIO files, as MXNet's ``im2rec`` and ``pipetune pack`` write them: an image and its label in each record.

Only the heads of records are read, one after the other; an ``.idx`` beside the file is not needed. A record with
several labels (one-hot, detection) says nothing about which one is the class, and MXNet refuses them unless it is told.
Face recognition sets of InsightFace are the exception: they begin with a record that has a range of numbers and no
image, and their first label is the class. Sources: dmlc-core's ``recordio.h``, MXNet's ``recordio.py``, InsightFace's
``dataset.py``; see :mod:`pipetune.packing.formats.recordio` for the layout.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass

from pipetune.datasets.labels import LabelError, check_class_number
from pipetune.datasets.shard_members import Found, Member, Tally, scanned, too_large

_MAGIC, _OLD_MAGIC = 0xCED7230A, 0x3ED7230A
_PART, _HEADER, _LABEL = struct.Struct("<II"), struct.Struct("<IfQQ"), struct.Struct("<f")
_MOST_BYTES = (1 << 29) - 1
_WHOLE, _FIRST = 0, 1
#: Labels are float32, which counts no further without gaps.
_MOST_LABEL = 1 << 24
#: A record with more labels than this is none of an image's.
_MOST_LABELS = 1 << 16


def members_of_records(shard: str) -> Found:
    """The images of a RecordIO file."""

    def scan(fd: int, size: int, members: list[Member], tally: Tally) -> None:
        at = number = 0
        is_face_set = False
        while at < size:
            head = os.pread(fd, _PART.size + _HEADER.size + _LABEL.size, at)
            reason = _damage(head, at, size)
            if reason is not None:
                raise ValueError(reason)
            kind, length = _PART.unpack_from(head)[1] >> 29, _PART.unpack_from(head)[1] & _MOST_BYTES
            if kind == _WHOLE:
                record = _Record(shard, number, at + _PART.size, length, head[_PART.size :])
                is_face_set |= number == 0 and record.is_range
                _take(record, members, tally, is_face_set=is_face_set)
                number += 1
            elif kind == _FIRST:
                # Of a million photographs, some six: they hold the number that begins a record.
                tally.members += 1
                tally.reject(f"{shard}/{number}", "is stored in several parts, and cannot be read at one place")
                number += 1
            at += _PART.size + length + -length % 4

    return scanned(shard, scan)


def _damage(head: bytes, at: int, size: int) -> str | None:
    """Why no record begins with these bytes; ``None``: one does."""
    if len(head) < _PART.size:
        return f"cut off at byte {at}"
    magic, field = _PART.unpack_from(head)
    if magic == _OLD_MAGIC:
        return "a RecordIO file of 2015, whose records have other heads; write it anew with im2rec"
    if magic != _MAGIC:
        return "not a RecordIO file" if at == 0 else f"no record at byte {at}"
    return f"cut off in the record at byte {at}" if at + _PART.size + (field & _MOST_BYTES) > size else None


@dataclass(frozen=True, slots=True)
class _Record:
    """A record that lies in one part."""

    shard: str
    number: int
    start: int
    """First byte behind the head of the part."""
    length: int
    head: bytes
    """Its first bytes: the header, and one label."""

    @property
    def label_count(self) -> int:
        """How many labels stand behind the header; 0: the header has the label."""
        return int(_HEADER.unpack_from(self.head)[0]) if len(self.head) >= _HEADER.size else 0

    @property
    def is_range(self) -> bool:
        """The record has two labels or more, and no image behind them."""
        return self.label_count > 1 and self.length == _HEADER.size + self.label_count * _LABEL.size


def _take(record: _Record, members: list[Member], tally: Tally, *, is_face_set: bool) -> None:
    """Note a record that holds an image."""
    place = f"{record.shard}/{record.number}"
    tally.members += 1
    if record.length < _HEADER.size or len(record.head) < _HEADER.size:
        tally.reject(place, "a record without the head of an image")
        return
    if is_face_set and record.is_range:
        tally.other["range of numbers"] += 1
        return
    count, label = record.label_count, _HEADER.unpack_from(record.head)[1]
    tally.labels += 1
    reason = _find_label_fault(record, is_face_set)
    if reason is None:
        if count:
            label = _LABEL.unpack_from(record.head, _HEADER.size)[0]
        if not 0 <= label < _MOST_LABEL or label != int(label):
            reason = f"a label of {label}, which is no class"
    if reason is None:
        try:
            label = check_class_number(int(label))
        except LabelError as error:
            reason = str(error)
    before = _HEADER.size + count * _LABEL.size
    size = record.length - before
    if reason is not None or size <= 0:
        tally.unmatched += 1
        tally.reject(place, reason or "a record without an image")
    elif (reason := too_large(size)) is not None:
        tally.reject(place, reason)
    else:
        members.append(Member(record.shard, str(record.number), record.start + before, size, int(label)))


def _find_label_fault(record: _Record, is_face_set: bool) -> str | None:
    count = record.label_count
    if count and (count > _MOST_LABELS or len(record.head) < _HEADER.size + _LABEL.size):
        return f"a record with {count:,} labels"
    if count > 1 and not is_face_set:
        return f"has {count} labels (one-hot, or a detection record), and which one is the class is not known"
    return None
