"""TFRecord files of ``tf.train.Example``, with an index for DALI beside each: ``NAME.tfrecord``, ``NAME.tfrecord.idx``.

Sources: TensorFlow's ``lib/io/record_writer.h`` and ``example.proto``, DALI's ``tfrecord2idx``. A record is,
little-endian::

    u64 length | u32 checksum of these 8 bytes | payload | u32 checksum of the payload

The checksum is CRC-32C, rotated right by 15 bits, plus 0xa282ead8. The features are those of TensorFlow's ImageNet
scripts: ``image/encoded``, ``image/format``, ``image/class/label``. Labels begin at 0 here; in those scripts at 1.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path

from pipetune.datasets.tfrecord import mask_checksum
from pipetune.errors import MissingPackageError
from pipetune.packing.formats.contract import Format, Place, Sample, ShardRows
from pipetune.packing.formats.shard_file import ShardFile
from pipetune.store.files import replace_file

LENGTH = struct.Struct("<QI")
_CHECKSUM = struct.Struct("<I")
#: Protocol buffers: field 1 with a length; number; 2 with a length; 3 with a length.
_FIELD1, _VARINTS, _FIELD2, _FIELD3 = b"\x0a", b"\x08", b"\x12", b"\x1a"
IMAGE, FORMAT, LABEL = "image/encoded", "image/format", "image/class/label"


class TfRecordWriter(ShardFile):
    """See :class:`pipetune.packing.formats.contract.ShardWriter`."""

    def begin(self) -> None:
        """Learn early whether the package for checksums is there."""
        self._crc32c = crc32c()

    def add(self, sample: Sample) -> Place:
        """One record."""
        payload, offset = example(sample)
        length = struct.pack("<Q", len(payload))
        start = self.at + LENGTH.size + offset
        sums = [_CHECKSUM.pack(mask_checksum(self._crc32c(part))) for part in (length, payload)]
        self.write(length, sums[0], payload, sums[1])
        return Place(self.name, start, len(sample.data))


def example(sample: Sample) -> tuple[bytes, int]:
    """The message, and where the image begins in it."""
    image = _field(_FIELD1, sample.data)
    value = _field(_FIELD1, image)  # a list of bytes
    entry = _field(_FIELD1, IMAGE.encode()) + _field(_FIELD2, value)
    rest = b"".join(
        _field(_FIELD1, _field(_FIELD1, name.encode()) + _field(_FIELD2, list_of))
        for name, list_of in (
            (FORMAT, _field(_FIELD1, _field(_FIELD1, sample.ending.encode()))),
            (LABEL, _field(_FIELD3, _field(_FIELD1, _varint(sample.label)))),
        )
    )
    # The image last, so that what precedes it has a known length.
    features = rest + _field(_FIELD1, entry)
    payload = _field(_FIELD1, features)
    return payload, len(payload) - len(sample.data)


@cache
def crc32c() -> Callable[[bytes], int]:
    """The function.

    Raises:
        MissingPackageError: the package that has it is not installed.
    """
    try:
        from google_crc32c import value
    except ImportError as error:
        raise MissingPackageError(
            "TFRecord files have checksums, for which google-crc32c is needed", hint="pip install google-crc32c"
        ) from error
    found: Callable[[bytes], int] = value
    return found


def _field(tag: bytes, data: bytes) -> bytes:
    return tag + _varint(len(data)) + data


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def write_indices(folder: Path, shards: Iterable[ShardRows], classes: Sequence[str]) -> None:
    """``NAME.tfrecord.idx``: offset and size of each record, as DALI reads it."""
    for shard in shards:
        lines, at = [], 0
        for row in shard.rows:
            end = row.start + row.length + _CHECKSUM.size
            lines.append(f"{at} {end - at}\n".encode("ascii"))
            at = end
        replace_file(folder / f"{shard.name}.idx", lines)


TFRECORD = Format(
    name="tfrecord", shard_name="shard-{:06d}.tfrecord".format, open=TfRecordWriter, write_index=write_indices,
    require=crc32c, per_sample_bytes=LENGTH.size + _CHECKSUM.size + 96,
)  # fmt: skip
