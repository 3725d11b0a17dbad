"""Whether an image file is complete, by its end and without decoding it.

Why: Pillow and torchvision refuse a file that is cut off, OpenCV and DALI fill the missing part with grey. Left out
before the first candidate, it makes no difference between them.
Sources: ITU-T T.81 B.1.1 (JPEG markers; 0xFF inside the scan is stuffed, so FFD9 there is the end), PNG 3rd edition
5.3 and 11.2.5 (chunks, IEND), RFC 9649 (RIFF size).
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable
from typing import NamedTuple

from pipetune.datasets.image_header import MAX_STEPS

#: Bytes at the end that are read first.
TAIL_BYTES = 4096
#: Largest file that is read whole where its end marker is not in the tail.
MAX_WHOLE_BYTES = 256 << 20

_JPEG_END = b"\xff\xd9"
_JPEG_SCAN = 0xDA
#: Start of frame; C4, C8 and CC are other things.
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_PNG_SIGNATURE_BYTES = 8
_PNG_END = b"IEND\xaeB`\x82"


def why_incomplete(path: str | bytes, image_format: str, size_bytes: int, *, start: int = 0) -> str | None:
    """Why an image is incomplete, in a few words; ``None``: its end was found.

    Args:
        path: a file whose header was readable.
        image_format: ``jpeg``, ``png`` or ``webp``.
        size_bytes: size of the image.
        start: offset of the image in the file (bytes).

    Raises:
        OSError: the file could not be opened or read.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return _why(lambda count, offset: os.pread(fd, count, start + offset), image_format, size_bytes)
    finally:
        os.close(fd)


def why_incomplete_bytes(data: bytes, image_format: str) -> str | None:
    """The same of an image in memory."""
    return _why(lambda count, offset: data[offset : offset + count], image_format, len(data))


def find_png_damage(data: bytes) -> str | None:
    """What is wrong with a whole PNG, by the lengths and checksums of its chunks; ``None``: nothing as far as IEND."""
    at = _PNG_SIGNATURE_BYTES
    while at + 12 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        end = at + 12 + length
        if end > len(data):
            return f"damaged: a chunk at byte {at} is longer than the file"
        if zlib.crc32(memoryview(data)[at + 4 : end - 4]) != int.from_bytes(data[end - 4 : end], "big"):
            name = kind.decode("ascii", "replace")
            return f"damaged: the checksum of the chunk {name!r} at byte {at} is another"
        if kind == b"IEND":
            return None
        at = end
    return "damaged: its chunks do not lead to IEND"


def has_late_exif(path: str | bytes, size_bytes: int, *, start: int = 0) -> bool:
    """Whether a PNG has an EXIF chunk behind its pixels, near its end.

    Args:
        path: a file whose header was readable.
        size_bytes: size of the image.
        start: offset of the image in the file (bytes).

    Raises:
        OSError: the file could not be opened or read.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        tail = os.pread(fd, min(TAIL_BYTES, size_bytes), start + max(0, size_bytes - TAIL_BYTES))
    finally:
        os.close(fd)
    return tail.rfind(b"eXIf") > tail.rfind(b"IDAT")


def _why(read: Callable[[int, int], bytes], image_format: str, size_bytes: int) -> str | None:
    """The same, with ``read(count, offset)``."""
    if image_format == "webp":
        (length,) = struct.unpack("<I", read(4, 4).ljust(4, b"\0"))
        return None if size_bytes >= 8 + length else _cut(size_bytes, f"its header says {8 + length}")
    tail = read(min(TAIL_BYTES, size_bytes), max(0, size_bytes - TAIL_BYTES))
    end, missing = (_PNG_END, "no IEND chunk") if image_format == "png" else (_JPEG_END, "no end-of-image marker")
    if tail.rstrip(b"\0").endswith(end):
        return None
    # A phone's "motion photo" has a video behind the image; an end marker in the tail may be a thumbnail's.
    if size_bytes > MAX_WHOLE_BYTES:
        return None
    data = tail if size_bytes <= TAIL_BYTES else read(size_bytes, 0)
    if image_format == "png":
        return None if end in data else _cut(size_bytes, missing)
    scan = first_scan(data)
    return None if scan is not None and data.find(end, scan.offset) >= 0 else _cut(size_bytes, missing)


def _cut(size_bytes: int, reason: str) -> str:
    return f"cut off after {size_bytes} bytes: {reason}"


class Scan(NamedTuple):
    """Where a JPEG's pixels begin."""

    offset: int
    """Of the marker (bytes)."""
    components: int
    """Colour components of the image; 0: the frame's header was not seen."""


def first_scan(data: bytes) -> Scan | None:
    """The first scan of a JPEG, behind all segments that could hold a thumbnail with markers of its own.

    ``None``: it is not in these bytes, or behind more than :data:`MAX_STEPS` markers.
    """
    offset, components = 2, 0
    for _ in range(MAX_STEPS):
        if offset + 4 > len(data):
            return None
        lead, marker, length = struct.unpack_from(">BBH", data, offset)
        if lead != 0xFF:
            return None
        if marker == 0xFF:  # fill byte
            offset += 1
        elif marker == _JPEG_SCAN:
            return Scan(offset, components)
        elif 0xD0 <= marker <= 0xD8 or marker == 0x01:
            offset += 2
        else:
            if marker in _FRAMES and offset + 10 <= len(data):
                components = data[offset + 9]
            offset += 2 + length
    return None
