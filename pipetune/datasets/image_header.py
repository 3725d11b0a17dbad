"""Width, height and kind of an image from its first bytes, without decoding it: JPEG, PNG and WebP, by content.

Why not Pillow or imagesize: 30 and 16 µs a file against 10 (tests/photos), neither names the reason why a file is
unusable, imagesize (2.0) does not know a progressive JPEG, and the parent process imports no decoder.
Sources: ITU-T T.81 annex B (JPEG markers), PNG 3rd edition sections 5 and 11, RFC 9649 (WebP), RFC 6386 section 9.1
(VP8).
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pipetune.datasets.exif_orientation import UPRIGHT, Orientation, Take, read_orientation
from pipetune.errors import PipetuneError

#: Pillow refuses to decode more than twice its ``MAX_IMAGE_PIXELS`` (a "decompression bomb").
MAX_PIXELS = 178_956_970
#: Bytes of one read, and the maximum that is read of a file in search of its header.
PAGE_BYTES = 4096
MAX_READ_BYTES = 1 << 20
#: Segments, fill bytes or chunks that are read before giving up, so that a hostile file costs milliseconds.
MAX_STEPS = 4096

_MARKERS_WITHOUT_LENGTH = frozenset((0x01, *range(0xD0, 0xD8)))
_ALL_SOF = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_READABLE_SOF = frozenset((0xC0, 0xC1, 0xC2, 0xC9, 0xCA))
_PROGRESSIVE_SOF = frozenset((0xC2, 0xCA))
_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
#: Colour type -> bits a sample that it may have.
_PNG_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
_APP1 = 0xE1
_USUAL_BITS = 8
_WEBP_EXIF_FLAG, _WEBP_ANIMATION_FLAG = 0x08, 0x02
_OTHERS = (
    (b"GIF8", "a GIF"),
    (b"BM", "a BMP"),
    (b"II*\0", "a TIFF"),
    (b"MM\0*", "a TIFF"),
    (b"\0\0\0\x0cJXL ", "a JPEG XL"),
    (b"\xff\x0a", "a JPEG XL"),
    (b"\0\0\0\x0cjP  ", "a JPEG 2000"),
    (b"<!DOC", "a web page"),
    (b"<html", "a web page"),
    (b"version https://git-lfs", "a Git LFS pointer, the image was not fetched"),
)


class NotAnImage(PipetuneError):
    """The bytes are not a JPEG, PNG or WebP that a decode backend can read; ``reason`` says why in a few words."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """Facts about an image that precede its pixels."""

    format: str
    """``jpeg``, ``png`` or ``webp``."""
    width: int
    """As stored (px), before the orientation."""
    height: int
    orientation: int = 1
    """EXIF orientation, 1..8; 1 where there is none or it is not valid."""
    exif_disputed: bool = False
    """Some libraries read another orientation, because the file has several EXIF blocks or a damaged one."""
    progressive: bool | None = None
    """Progressive JPEG or interlaced PNG; ``None`` for WebP."""
    animated: bool = False
    """A WebP of several frames, of which the first is the image."""
    bits: int = 8
    """Bits a sample."""

    @property
    def is_odd(self) -> bool:
        """Some library's usual call fails, or gives other pixels than pipetune's decoders make of the image."""
        is_turned_otherwise = self.exif_disputed or (self.orientation != 1 and self.format != "jpeg")
        return is_turned_otherwise or self.animated or self.bits > _USUAL_BITS


def parse_header(data: bytes) -> Header:
    """The header of an image in memory, of which only the beginning is needed.

    Raises:
        NotAnImage: not a JPEG, PNG or WebP, cut off before its size, or of a kind that no decode backend reads.
    """

    def take(offset: int, count: int) -> bytes:
        piece = data[offset : offset + count]
        if len(piece) < count:
            raise NotAnImage(f"cut off after {len(data)} bytes, before the image's size")
        return piece

    return _parse(data[:32], take)


def read_header(path: str | bytes, *, start: int = 0) -> Header:
    """The header of an image file: one read of 4 KiB, more only where the size lies further in.

    Large segments (thumbnails, colour profiles) are skipped; at most 1 MiB is read.

    Args:
        path: the file.
        start: offset of the image in the file (bytes).

    Raises:
        NotAnImage: see :func:`parse_header`.
        OSError: the file could not be opened or read.
    """
    # O_NONBLOCK: opening a FIFO with the name of an image must not hang.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        page = os.pread(fd, PAGE_BYTES, start) if start else os.read(fd, PAGE_BYTES)
        page_start = 0
        left = MAX_READ_BYTES

        def take(offset: int, count: int) -> bytes:
            nonlocal page, page_start, left
            at = offset - page_start
            if at < 0 or at + count > len(page):
                left -= PAGE_BYTES
                if left <= 0:
                    raise NotAnImage(f"no image size in the {MAX_READ_BYTES >> 20} MiB of header that were read")
                page, page_start, at = os.pread(fd, PAGE_BYTES, start + offset), offset, 0
                if len(page) < count:
                    raise NotAnImage(f"cut off after {os.fstat(fd).st_size} bytes, before the image's size")
            return page[at : at + count]

        return _parse(page[:32], take)
    finally:
        os.close(fd)


def _parse(start: bytes, take: Take) -> Header:
    if start[:2] == b"\xff\xd8":
        header = _parse_jpeg(take)
    elif start[:8] == _PNG_SIGNATURE:
        header = _parse_png(take)
    elif start[:4] == b"RIFF" and start[8:12] == b"WEBP":
        header = _parse_webp(take)
    else:
        raise NotAnImage(_what_else(start))
    pixels = header.width * header.height
    if pixels == 0:
        raise NotAnImage(f"has no pixels ({header.width} x {header.height})")
    if pixels > MAX_PIXELS:
        raise NotAnImage(f"says it is {header.width} x {header.height} px, more than decoders accept")
    return header


def _what_else(start: bytes) -> str:
    if not start:
        return "empty file"
    if start[4:8] == b"ftyp":
        return "a HEIC, AVIF or video file"
    for magic, name in _OTHERS:
        if start.startswith(magic):
            return name
    return f"not a JPEG, PNG or WebP: begins with {start[:8]!r}"


def _parse_jpeg(take: Take) -> Header:
    header: Header | None = None
    segments: list[Orientation | None] = []
    offset = 2
    try:
        for _ in range(MAX_STEPS):
            lead, marker, length = struct.unpack(">BBH", take(offset, 4))
            if lead != 0xFF:
                raise NotAnImage(f"broken JPEG: no marker at byte {offset}")
            if marker == 0xFF:  # T.81 B.1.1.2: any number of fill bytes may precede a marker
                offset += 1
                continue
            if marker in _MARKERS_WITHOUT_LENGTH:
                offset += 2
                continue
            if marker in _ALL_SOF and header is None:
                header = _parse_frame(marker, take(offset + 4, min(length - 2, 18)))
            if marker in (0xD9, 0xDA) or length < 2:
                raise NotAnImage(f"broken JPEG: marker FF{marker:02X} before the image's size")
            if marker == _APP1 and length > 8:
                segments.append(_read_segment(take, offset + 4, offset + 2 + length))
            offset += 2 + length
        raise NotAnImage(f"broken JPEG: no image size in the first {MAX_STEPS} markers")
    except NotAnImage:
        # Behind the size only EXIF is looked for, as far as the scan: libraries read it there as well.
        if header is None:
            raise
    orientation = _combine_segments(segments)
    return replace(header, orientation=orientation.value, exif_disputed=orientation.disputed)


def _read_segment(take: Take, start: int, end: int) -> Orientation | None:
    """The orientation in an APP1 segment; ``None``: it holds something else, such as XMP."""
    name = take(start, 6)
    if name[:5] != b"Exif\0":
        return None
    orientation = _read_exif(take, start + 6, end)
    if name[5]:  # torchvision and TorchCodec pass over the sixth byte
        return Orientation(1, disputed=orientation.value != 1)
    return orientation


def _read_exif(take: Take, start: int, end: int) -> Orientation:
    try:
        return read_orientation(take, start, end)
    except NotAnImage:
        return UPRIGHT  # the segment is cut off: reading the next marker reports it


def _combine_segments(segments: Sequence[Orientation | None]) -> Orientation:
    """The orientation of an image with these APP1 segments, or EXIF chunks: that of the first one which is EXIF.

    Libraries differ where EXIF blocks disagree. DALI ends with a segmentation fault there: it allocates the image by
    one of them, and turns it by the other. torchvision and TorchCodec look at the first APP1 segment only.
    """
    blocks = [segment for segment in segments if segment is not None]
    if not blocks:
        return UPRIGHT
    first = blocks[0]
    is_hidden = segments[0] is None and first.value != 1
    return first._replace(disputed=first.disputed or is_hidden or len(set(blocks)) > 1)


def _parse_frame(marker: int, body: bytes) -> Header:
    if marker not in _READABLE_SOF:
        raise NotAnImage(f"a lossless or hierarchical JPEG (SOF{marker - 0xC0})")
    if len(body) < 6:
        raise NotAnImage("broken JPEG: frame header too short")
    bits, height, width, components = struct.unpack_from(">BHHB", body)
    if bits != 8:
        raise NotAnImage(f"a JPEG with {bits} bits a sample")
    if components not in (1, 3, 4) or len(body) < 6 + 3 * components:
        raise NotAnImage(f"broken JPEG: {components} components in a frame header of {len(body)} bytes")
    return Header(
        format="jpeg",
        width=width,
        height=height,
        progressive=marker in _PROGRESSIVE_SOF,
    )


def _parse_png(take: Take) -> Header:
    body = take(8, 25)
    length, kind, width, height, depth, colour, _, _, interlace = struct.unpack(">I4sIIBBBBB", body[:21])
    if kind != b"IHDR" or length != 13 or zlib.crc32(body[4:21]) != struct.unpack(">I", body[21:])[0]:
        raise NotAnImage("broken PNG: no valid IHDR")
    if depth not in _PNG_DEPTHS.get(colour, ()) or interlace > 1:
        raise NotAnImage(f"broken PNG: colour type {colour} with {depth} bits a sample")
    orientation = _png_orientation(take)
    return Header(
        format="png",
        width=width,
        height=height,
        orientation=orientation.value,
        exif_disputed=orientation.disputed,
        progressive=interlace == 1,
        bits=depth,
    )


def _png_orientation(take: Take) -> Orientation:
    """Orientation from the first ``eXIf`` chunk before the pixels; Pillow obeys the last.

    Raises:
        NotAnImage: the PNG is animated, and its still image is no frame: OpenCV and DALI decode the first frame, and
            Pillow, torchvision and TorchCodec the still image.
    """
    offset = 33
    chunks: list[Orientation] = []
    kinds: set[bytes] = set()
    try:
        for _ in range(64):
            length, kind = struct.unpack(">I4s", take(offset, 8))
            kinds.add(kind)
            if kind == b"eXIf":
                chunks.append(_read_chunk(take, offset + 8, offset + 8 + length))
            if kind in (b"IDAT", b"IEND"):
                break
            offset += 12 + length
    except NotAnImage:
        pass  # cut off behind a valid IHDR: image_tail reports it, as for a JPEG's scan
    if b"acTL" in kinds and b"fcTL" not in kinds:
        raise NotAnImage("an animated PNG whose still image is none of its frames, which decoders read differently")
    return _combine_segments(chunks)


def _read_chunk(take: Take, start: int, end: int) -> Orientation:
    if end - start > 8 and take(start, 6) == b"Exif\0\0":  # a JPEG's prefix, which only Pillow passes over
        return Orientation(1, disputed=True)
    return _read_exif(take, start, end)


def _parse_webp(take: Take) -> Header:
    kind, length, body = struct.unpack("<4sI10s", take(12, 18))
    if kind == b"VP8 ":
        if body[3:6] != b"\x9d\x01\x2a" or body[0] & 1:
            raise NotAnImage("broken WebP: no key frame")
        width, height = (value & 0x3FFF for value in struct.unpack_from("<HH", body, 6))
        return Header(format="webp", width=width, height=height)
    if kind == b"VP8L":
        if body[0] != 0x2F:
            raise NotAnImage("broken WebP: no lossless signature")
        bits = int.from_bytes(body[1:5], "little")
        return Header(format="webp", width=(bits & 0x3FFF) + 1, height=(bits >> 14 & 0x3FFF) + 1)
    if kind == b"VP8X":
        has_exif = body[0] & _WEBP_EXIF_FLAG
        is_animated = bool(body[0] & _WEBP_ANIMATION_FLAG)
        orientation = _webp_orientation(take, 20 + length + (length & 1)) if has_exif else UPRIGHT
        return Header(
            format="webp",
            width=int.from_bytes(body[4:7], "little") + 1,
            height=int.from_bytes(body[7:10], "little") + 1,
            orientation=orientation.value,
            exif_disputed=orientation.disputed,
            animated=is_animated,
        )
    raise NotAnImage(f"broken WebP: first chunk is {kind!r}")


def _webp_orientation(take: Take, offset: int) -> Orientation:
    try:
        for _ in range(64):
            kind, length = struct.unpack("<4sI", take(offset, 8))
            if kind == b"EXIF":
                body = offset + 8
                skip = 6 if take(body, 6) == b"Exif\0\0" else 0  # some writers keep the JPEG prefix
                return read_orientation(take, body + skip, body + length)
            offset += 8 + length + (length & 1)
    except NotAnImage:
        pass  # cut off behind a valid size: image_tail reports it
    return UPRIGHT
