"""Pixels of one size, as ``numpy.load(NAME, mmap_mode="r")`` maps them: ``NAME.pixels.npy``, ``NAME.labels.npy``.

uint8 ``[images, edge, edge, 3]``, red, green, blue, row by row; and int64 ``[images]``. Source of the layout: numpy's
``lib/format.py``, version 1.0. The head of the pixels has a fixed length, because it is written last: images that are
rejected leave no gap.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path

from pipetune.datasets.raw_pixels import FIXED, LABELS, MAGIC, PIXELS
from pipetune.packing.formats.contract import Format, Place, Sample, ShardRows
from pipetune.packing.formats.shard_file import ShardFile
from pipetune.store.files import replace_file

#: Bytes before the first pixel; a multiple of 64, as numpy has it.
HEAD = 128


def head(kind: str, shape: tuple[int, ...]) -> bytes:
    """The head of an array."""
    told = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".encode("ascii")
    length = HEAD - FIXED
    return MAGIC + b"\x01\x00" + struct.pack("<H", length) + told.ljust(length - 1) + b"\n"


class PixelWriter(ShardFile):
    """See :class:`pipetune.packing.formats.contract.ShardWriter`. The number of images comes first, and is written
    last."""

    def begin(self) -> None:
        """Room for the head."""
        self._edge = self._images = 0
        self.write(bytes(HEAD))

    def add(self, sample: Sample) -> Place:
        """The pixels."""
        edge = math.isqrt(len(sample.data) // 3)
        assert 3 * edge * edge == len(sample.data)
        assert edge == self._edge or not self._images, "pixels of one size"
        self._edge, self._images = edge, self._images + 1
        start = self.at
        self.write(sample.data)
        return Place(self.name, start, len(sample.data))

    def end(self) -> None:
        """How many images there are."""
        self.overwrite(head("|u1", (self._images, self._edge, self._edge, 3)))


def write_labels(folder: Path, shards: Iterable[ShardRows], classes: Sequence[str]) -> None:
    """The labels of each shard."""
    for shard in shards:
        labels = [row.label for row in shard.rows]
        data = struct.pack(f"<{len(labels)}q", *labels)
        replace_file(folder / (shard.name.removesuffix(PIXELS) + LABELS), [head("<i8", (len(labels),)), data])


RAW = Format(
    name="raw", shard_name=("shard-{:06d}" + PIXELS).format, open=PixelWriter, write_index=write_labels,
    holds_pixels=True,
)  # fmt: skip
