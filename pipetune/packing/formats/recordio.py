"""RecordIO, as MXNet's image iterators and DALI read it: ``NAME.rec`` with ``NAME.idx`` and ``NAME.lst`` beside it.

Source: dmlc-core's recordio.h and recordio.cc, MXNet's recordio.py. A record is, little-endian::

    u32 0xced7230a | u32 kind << 29 | length | payload | zeros to a multiple of 4
    payload = u32 flag 0 | f32 label | u64 id | u64 0 | image

A payload in which the first number stands at a multiple of 4 is cut there: kinds 1, 2 and 3 are first, middle and last
parts, and the number itself is left out.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from pipetune.packing.formats.contract import Format, Place, Sample, ShardRows
from pipetune.packing.formats.shard_file import ShardFile
from pipetune.store.files import replace_file

MAGIC = struct.pack("<I", 0xCED7230A)
#: Of one part (bytes); also the bits that hold it.
MOST_BYTES = (1 << 29) - 1
#: Labels are float32, which counts no further without gaps.
MOST_LABEL = 1 << 24
HEADER = struct.Struct("<IfQQ")
WHOLE, FIRST, MIDDLE, LAST = range(4)
PART = struct.Struct("<4sI")


class RecordWriter(ShardFile):
    """See :class:`pipetune.packing.formats.contract.ShardWriter`."""

    def add(self, sample: Sample) -> Place:
        """One record; of one that is cut, the place is the first part's, and the length the whole one's.

        Raises:
            ValueError: the image is too large, or the label is.
        """
        if sample.label > MOST_LABEL:
            raise ValueError(f"a label of {sample.label}, which RecordIO's float32 does not hold")
        payload = HEADER.pack(0, float(sample.label), sample.number, 0) + sample.data
        if len(payload) > MOST_BYTES:
            raise ValueError(f"an image of {len(sample.data):,} bytes, which RecordIO does not hold")
        start = self.at + PART.size + HEADER.size
        for kind, part in parts(payload):
            self.write(PART.pack(MAGIC, kind << 29 | len(part)), part, bytes(-len(part) % 4))
        return Place(self.name, start, len(sample.data))


def parts(payload: bytes) -> Iterator[tuple[int, memoryview]]:
    """The parts that a payload is cut into, each with its kind."""
    view, cuts = memoryview(payload), cuts_of(payload)
    if not cuts:
        yield WHOLE, view
        return
    starts, ends = [0, *(cut + 4 for cut in cuts)], [*cuts, len(payload)]
    for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
        yield FIRST if number == 0 else LAST if number == len(cuts) else MIDDLE, view[start:end]


def cuts_of(payload: bytes) -> list[int]:
    """Where the magic number stands at a multiple of 4, which is where a reader would look for a record."""
    found, at = [], payload.find(MAGIC)
    while at >= 0:
        if at % 4 == 0:
            found.append(at)
        at = payload.find(MAGIC, at + (4 if at % 4 == 0 else 1))
    return found


def read_joined(folder: Path, file: str, start: int, length: int) -> bytes:
    """An image, whose record may be cut: see :func:`parts`.

    Raises:
        OSError: it cannot be read.
        ValueError: no record stands there.
    """
    with (folder / file).open("rb") as opened:
        at = start - HEADER.size - PART.size
        found, kind = bytearray(), FIRST
        while kind in (FIRST, MIDDLE):
            magic, field = PART.unpack(os.pread(opened.fileno(), PART.size, at))
            kind, size = field >> 29, field & MOST_BYTES
            if magic != MAGIC or (kind in (WHOLE, FIRST)) != (not found):
                raise ValueError(f"no record at byte {at} of {file}")
            found += (MAGIC if found else b"") + os.pread(opened.fileno(), size, at + PART.size)
            at += PART.size + size + -size % 4
    return bytes(found[HEADER.size : HEADER.size + length])


def write_indices(folder: Path, shards: Iterable[ShardRows], classes: Sequence[str]) -> None:
    """``.idx`` (id, offset of the record) and ``.lst`` (id, label, name), tabs between, for each ``.rec``."""
    for shard in shards:
        target = folder / shard.name
        offset = PART.size + HEADER.size
        replace_file(target.with_suffix(".idx"), (
            f"{row.number}\t{row.start - offset}\n".encode("ascii") for row in shard.rows
        ))  # fmt: skip
        replace_file(target.with_suffix(".lst"), (
            f"{row.number}\t{float(row.label)}\t{row.key}\n".encode("utf-8", "surrogateescape") for row in shard.rows
        ))  # fmt: skip


RECORDIO = Format(
    name="recordio", shard_name="shard-{:06d}.rec".format, open=RecordWriter, write_index=write_indices,
    read=read_joined, per_sample_bytes=PART.size + HEADER.size + 1.5,
)  # fmt: skip
