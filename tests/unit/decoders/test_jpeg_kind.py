from __future__ import annotations

import io

import numpy as np
import pytest

from pipetune.decoders.jpeg_kind import is_plain_jpeg
from tests.photo_set import PHOTOS

Image = pytest.importorskip("PIL.Image", reason="the files are made with Pillow")


def saved(mode: str = "RGB", kind: str = "JPEG", **options: object) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (48, 32), (200, 100, 50)).convert(mode).save(file, kind, **options)
    return file.getvalue()


def as_array(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)


@pytest.mark.parametrize("photo", sorted(PHOTOS.glob("*/*.jpg")), ids=lambda path: path.name)
def test_photographs_are_plain(photo: object) -> None:
    assert is_plain_jpeg(np.fromfile(photo, np.uint8))  # type: ignore[call-overload]


@pytest.mark.parametrize("options", [{}, {"subsampling": 0}, {"exif": b"Exif\0\0MM\0*\0\0\0\x08\0\0\0\0\0\0"}])
def test_sequential_colour_jpegs_are_plain(options: dict[str, object]) -> None:
    assert is_plain_jpeg(as_array(saved(**options)))


@pytest.mark.parametrize(
    "data",
    [
        saved(progressive=True),
        saved("L"),
        saved("CMYK"),
        saved(kind="PNG"),
        saved(keep_rgb=True),
        b"",
        b"\xff\xd8",
        saved()[:100],
        b"\xff\xd8" + b"\xff" * 5000,
        b"\xff\xd8\xff\xe0\0\0" * 40,
    ],
    ids=["progressive", "grey", "cmyk", "png", "rgb", "empty", "start", "cut", "fill", "no length"],
)
def test_others_are_left_to_the_cpu(data: bytes) -> None:
    assert not is_plain_jpeg(as_array(data))


def test_adobes_marker_may_say_that_it_stores_rgb() -> None:
    plain = saved()
    adobe = b"\xff\xee\0\x0eAdobe\0\x64\0\0\0\0"
    assert is_plain_jpeg(as_array(plain[:2] + adobe + b"\x01" + plain[2:]))
    assert not is_plain_jpeg(as_array(plain[:2] + adobe + b"\x00" + plain[2:]))
