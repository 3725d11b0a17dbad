"""MDS shards, as MosaicML's streaming library reads them: ``shard.00000.mds`` and one ``index.json``.

Source: streaming's ``base/format/mds/writer.py``. A shard is, little-endian::

    u32 samples | u32 offset of each sample, and of the end | JSON that describes the columns | the samples
    sample = u32 size of each column without a fixed one | the columns in the order of their names

The columns are ``image`` (the encoded bytes, which the reader decodes), and ``label`` (an integer of 8 bytes).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path

from pipetune.errors import PipetuneError
from pipetune.packing.formats.contract import Format, Place, Sample, ShardRows
from pipetune.packing.formats.shard_file import ShardFile
from pipetune.store.files import replace_file

#: Offsets have 32 bits.
MOST_BYTES = (1 << 32) - 1
#: ``pil`` would be pixels; the reader opens ``jpeg`` with Pillow, which knows every format by its content.
_COLUMNS = {"image": "jpeg", "label": "int"}
_SIZES = {"image": None, "label": 8}
_COMMON = {
    "column_encodings": list(_COLUMNS.values()), "column_names": list(_COLUMNS), "column_sizes": list(_SIZES.values()),
    "compression": None, "format": "mds", "hashes": [], "size_limit": 1 << 26,
}  # fmt: skip
_CONFIG = json.dumps(_COMMON, sort_keys=True).encode("utf-8")
_LABEL = struct.Struct("<q")


class MdsWriter(ShardFile):
    """See :class:`pipetune.packing.formats.contract.ShardWriter`. The offsets come first, and are written last."""

    def begin(self) -> None:
        """Room for the offsets."""
        self._offsets = [4 * (self.samples + 2) + len(_CONFIG)]
        self.write(bytes(self._offsets[0]))

    def add(self, sample: Sample) -> Place:
        """The size of the image, the image, the label.

        Raises:
            PipetuneError: the shard would be too large for the format's offsets.
        """
        start, length = self.at, len(sample.data)
        if start + 4 + length + _LABEL.size > MOST_BYTES:
            raise PipetuneError("an MDS shard of more than 4 GiB, which its offsets do not hold",
                                hint="pack into another folder with a smaller --shard-size")  # fmt: skip
        self.write(struct.pack("<I", length), sample.data, _LABEL.pack(sample.label))
        self._offsets.append(self.at)
        return Place(self.name, start + 4, length)

    def end(self) -> None:
        """Number and offsets of the samples, and the description behind them. Where samples were rejected, a gap stays
        before the first one, which readers find by its offset."""
        count = len(self._offsets) - 1
        self.overwrite(struct.pack(f"<{count + 2}I", count, *self._offsets) + _CONFIG)


def write_index(folder: Path, shards: Iterable[ShardRows], classes: Sequence[str]) -> None:
    """``index.json``: the shards in their order."""
    rows = [
        {
            **_COMMON, "raw_data": {"basename": shard.name, "bytes": shard.size, "hashes": {}},
            "samples": len(shard.rows), "version": 2, "zip_data": None,
        }
        for shard in shards
    ]  # fmt: skip
    replace_file(folder / "index.json", [json.dumps({"shards": rows, "version": 2}, sort_keys=True).encode("utf-8")])


MDS = Format(
    name="mds", shard_name="shard.{:05d}.mds".format, open=MdsWriter, write_index=write_index, per_sample_bytes=16.0,
    largest_shard=MOST_BYTES,
)  # fmt: skip
