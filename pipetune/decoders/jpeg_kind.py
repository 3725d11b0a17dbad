"""Which JPEGs are given to a decoder on a device: those on which such decoders agree with libjpeg."""

from __future__ import annotations

from pipetune.decoders.contract import Array

_START = b"\xff\xd8"
#: Markers of frames with Huffman codes in one scan order (baseline, extended sequential); of all kinds of frames.
_SEQUENTIAL = frozenset((0xC0, 0xC1))
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_SCAN, _END, _ADOBE = 0xDA, 0xD9, 0xEE
_WITHOUT_LENGTH = frozenset((0x01, *range(0xD0, 0xD8)))
#: Markers that are looked at before a file is left to the CPU.
_MAX_STEPS = 256
_RGB_IDS = b"RGB"


def is_plain_jpeg(data: Array) -> bool:
    """Whether a file is a sequential JPEG of 8 bits with three components in YCbCr.

    A progressive one takes no JPEG engine, grey and CMYK come in other shapes, and one that stores RGB (by Adobe's
    marker, or the names of its components) is decoded as YCbCr by some libraries. What is damaged is not plain either.
    """
    head = data.data
    if bytes(head[:2]) != _START:
        return False
    offset, rgb = 2, False
    for _ in range(_MAX_STEPS):
        if offset + 4 > len(head) or head[offset] != 0xFF:
            return False
        marker, length = head[offset + 1], (head[offset + 2] << 8) + head[offset + 3]
        if marker == 0xFF:
            offset += 1
        elif marker in _WITHOUT_LENGTH:
            offset += 2
        elif marker in _FRAMES:
            body = head[offset + 4 : offset + 2 + length]
            # T.81 B.2.2: precision, lines, samples a line, number of components; then three bytes for each of them.
            three = len(body) >= 15 and body[0] == 8 and body[5] == 3
            return marker in _SEQUENTIAL and three and not rgb and bytes(body[6:15:3]) != _RGB_IDS
        elif marker in (_SCAN, _END):
            return False
        else:
            if marker == _ADOBE and bytes(head[offset + 4 : offset + 9]) == b"Adobe":
                rgb = bytes(head[offset + 15 : offset + 16]) == b"\x00"
            offset += 2 + length
    return False
