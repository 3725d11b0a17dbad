"""Images that are odd or broken, made from a real photograph."""

from __future__ import annotations

import io
import struct
from typing import Any

from PIL import Image

from tests.photo_set import PHOTOS

PHOTO = PHOTOS / "things" / "coffee.jpg"


def jpeg(**options: Any) -> bytes:
    buffer = io.BytesIO()
    mode = options.pop("mode", "RGB")
    Image.open(PHOTO).convert(mode).save(buffer, options.pop("format", "JPEG"), **options)
    return buffer.getvalue()


def without_tables(data: bytes) -> bytes:
    """Header and end are there, but without quantisation tables no decoder can read what lies between."""
    while (at := data.find(b"\xff\xdb")) >= 0:
        (length,) = struct.unpack_from(">H", data, at + 2)
        data = data[:at] + data[at + 2 + length :]
    return data


def broken_png() -> bytes:
    data = jpeg(format="PNG")
    return data[:3000] + bytes(500) + data[3500:]
