"""Writes an image's EXIF anew, so that every library reads the orientation that the index has.

For images whose EXIF is disputed (see :class:`pipetune.datasets.exif_orientation.Orientation`) and for libraries that
cannot be told the orientation. Pixels and all other metadata keep their bytes.
Sources: ITU-T T.81 annex B, PNG 3rd edition section 11.3.4.4 (eXIf).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

_UPRIGHT = 1
_TAG = struct.Struct("<4sIHHHIHHI")
_SCAN, _APP1 = 0xDA, 0xE1
#: A fill byte, and markers that no length follows.
_WITHOUT_LENGTH = frozenset((0xFF, 0x01, *range(0xD0, 0xD8)))
_PNG_HEAD_BYTES = 33


def write_plain_exif(data: bytes, image_format: str, orientation: int) -> bytes:
    """The image with one EXIF block that holds the orientation alone, or with none where it is upright.

    Args:
        data: a whole file, which has a readable header.
        image_format: ``jpeg`` or ``png``; a WebP is returned as it is, because it has one EXIF chunk.
        orientation: 1..8.
    """
    block = b"" if orientation == _UPRIGHT else _TAG.pack(b"II*\0", 8, 1, 0x0112, 3, 1, orientation, 0, 0)
    if image_format == "jpeg":
        return b"".join(_jpeg_parts(data, block))
    if image_format == "png":
        return b"".join(_png_parts(data, block))
    return data


def _jpeg_parts(data: bytes, block: bytes) -> Iterator[bytes]:
    yield data[:2]
    if block:
        yield struct.pack(">BBH", 0xFF, _APP1, 8 + len(block)) + b"Exif\0\0" + block
    at = 2
    while at + 4 <= len(data) and data[at] == 0xFF and data[at + 1] != _SCAN:
        marker = data[at + 1]
        if marker in _WITHOUT_LENGTH:
            at += 1 if marker == 0xFF else 2
            continue
        end = at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        if not (marker == _APP1 and data[at + 4 : at + 9] == b"Exif\0"):
            yield data[at:end]
        at = end
    yield data[at:]


def _png_parts(data: bytes, block: bytes) -> Iterator[bytes]:
    yield data[:_PNG_HEAD_BYTES]
    if block:
        body = b"eXIf" + block
        yield struct.pack(">I", len(block)) + body + struct.pack(">I", zlib.crc32(body))
    at = _PNG_HEAD_BYTES
    while at + 12 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        if kind != b"eXIf":
            yield data[at : at + 12 + length]
        at += 12 + length
    yield data[at:]
