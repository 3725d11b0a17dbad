"""RecordIO files, as MXNet's ``im2rec`` and ``pipetune pack`` write them: an image and its label in each record.

Only the heads of records are read, one after the other; an ``.idx`` beside the file is not needed. Sources: dmlc-core's
``recordio.h`` and MXNet's ``recordio.py``; see :mod:`pipetune.packing.formats.recordio` for the layout.
"""

from __future__ import annotations

import os
import struct

from pipetune.datasets.shard_members import Found, Member, Problems, scanned, too_large

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

    def scan(fd: int, size: int, members: list[Member], problems: Problems) -> None:
        at = number = 0
        while at < size:
            head = os.pread(fd, _PART.size + _HEADER.size + _LABEL.size, at)
            reason = _damage(head, at, size)
            if reason is not None:
                raise ValueError(reason)
            kind, length = _PART.unpack_from(head)[1] >> 29, _PART.unpack_from(head)[1] & _MOST_BYTES
            if kind == _WHOLE:
                _take(shard, number, at + _PART.size, length, head[_PART.size :], members, problems)
                number += 1
            elif kind == _FIRST:
                # Of a million photographs, some six: they hold the number that begins a record.
                problems.add(f"{shard}/{number}", "is stored in several parts, and cannot be read at one place")
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


def _take(
    shard: str, number: int, start: int, length: int, head: bytes, members: list[Member],
    problems: Problems,
) -> None:  # fmt: skip
    """Note a record that holds an image. Face recognition sets begin with one that holds a range of numbers."""
    place = f"{shard}/{number}"
    if length < _HEADER.size or len(head) < _HEADER.size:
        problems.add(place, "a record without the head of an image")
        return
    labels, label, _, _ = _HEADER.unpack_from(head)
    if labels:
        if labels > _MOST_LABELS or len(head) < _HEADER.size + _LABEL.size:
            problems.add(place, f"a record with {labels} labels")
            return
        label = _LABEL.unpack_from(head, _HEADER.size)[0]
    before = _HEADER.size + labels * _LABEL.size
    size = length - before
    if size <= 0:
        problems.add(place, "a record without an image")
    elif (reason := too_large(size)) is not None:
        problems.add(place, reason)
    elif not 0 <= label < _MOST_LABEL or label != int(label):
        problems.add(place, f"a label of {label}, which is no class")
    else:
        members.append(Member(shard, str(number), start + before, size, str(int(label))))
