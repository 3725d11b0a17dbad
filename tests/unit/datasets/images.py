"""Small encoded images for the tests of the data sets."""

from __future__ import annotations

import io
import struct
from typing import Any

from PIL import Image


def encode(form: str = "JPEG", size: tuple[int, int] = (40, 30), mode: str = "RGB", **options: Any) -> bytes:
    buffer = io.BytesIO()
    Image.new(mode, size).save(buffer, form, **options)
    return buffer.getvalue()


def exif(orientation: int, order: str = "<", before: int = 0) -> bytes:
    """A TIFF structure with ``before`` other tags, then the orientation."""
    mark = b"II*\0" if order == "<" else b"MM\0*"
    entries = b"".join(struct.pack(order + "HHII", 0x0100 + number, 4, 1, 7) for number in range(before))
    entries += struct.pack(order + "HHIHH", 0x0112, 3, 1, orientation, 0)
    return mark + struct.pack(order + "IH", 8, before + 1) + entries + struct.pack(order + "I", 0)


def segment(marker: int, body: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body


def with_segments(jpeg: bytes, *segments: bytes) -> bytes:
    """Insert segments right behind the start of the image."""
    return jpeg[:2] + b"".join(segments) + jpeg[2:]


def with_scans(size: tuple[int, int], scans: int) -> bytes:
    """A valid progressive JPEG of one colour with so many more scans, each of which visits every block again."""
    jpeg = encode(size=size, progressive=True)
    # A Huffman table whose code 0 means: the next 16,384 blocks have nothing more.
    table = segment(0xC4, bytes([0x13, 1, *[0] * 15, 0xE0]))
    scan = segment(0xDA, bytes([1, 1, 0x03, 1, 63, 0])) + bytes(2 * (1 + size[0] * size[1] // 64 // 16384))
    assert jpeg.endswith(b"\xff\xd9")
    return jpeg[:-2] + table + scans * scan + jpeg[-2:]
