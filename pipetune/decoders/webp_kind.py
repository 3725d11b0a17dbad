"""Tells an animated WebP from a still one, by its first bytes."""

from __future__ import annotations

#: Bytes of the head in which the flag is (RFC 9649 section 2.7), and the flag.
_HEAD_BYTES, _ANIMATED = 21, 0x02


def is_animated_webp(data: memoryview) -> bool:
    """Whether these bytes, a whole file, are a WebP of several frames."""
    head = bytes(data[:_HEAD_BYTES])
    is_extended = len(head) == _HEAD_BYTES and head[:4] == b"RIFF" and head[8:16] == b"WEBPVP8X"
    return is_extended and bool(head[20] & _ANIMATED)
