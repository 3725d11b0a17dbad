from __future__ import annotations

import io
from pathlib import Path

import pytest
from PIL import Image

from pipetune.datasets.image_header import MAX_STEPS, read_header
from pipetune.datasets.image_tail import TAIL_BYTES, find_png_damage, first_scan, why_incomplete
from tests.photo_set import PHOTOS

PHOTO = PHOTOS / "things" / "coffee.jpg"


def encoded(image_format: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    Image.open(PHOTO).convert("RGB").resize((300, 200)).save(buffer, image_format, **options)
    return buffer.getvalue()


def judged(tmp_path: Path, data: bytes) -> str | None:
    path = tmp_path / "image"
    path.write_bytes(data)
    return why_incomplete(str(path), read_header(str(path)).format, len(data))


WHOLE = {
    "jpeg": encoded("JPEG", quality=95),
    "progressive": encoded("JPEG", quality=95, progressive=True),
    "png": encoded("PNG"),
    "webp": encoded("WEBP", quality=95),
    "lossless webp": encoded("WEBP", lossless=True),
}


@pytest.mark.parametrize("name", WHOLE)
def test_whole_images_are_complete(name: str, tmp_path: Path) -> None:
    assert judged(tmp_path, WHOLE[name]) is None


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
def test_images_that_are_cut_off_are_recognised(name: str, share: float, tmp_path: Path) -> None:
    data = WHOLE[name]
    reason = judged(tmp_path, data[: int(share * len(data))])
    assert reason is not None
    assert reason.startswith(f"cut off after {int(share * len(data))} bytes")


def test_one_byte_less_is_too_little(tmp_path: Path) -> None:
    assert judged(tmp_path, WHOLE["jpeg"][:-1]) is not None


@pytest.mark.parametrize("extra", [b"\0" * 10, b"\0" * (3 * TAIL_BYTES), b"ftypmp42" * 2000])
@pytest.mark.parametrize("name", ["jpeg", "png"])
def test_bytes_behind_the_end_do_no_harm(name: str, extra: bytes, tmp_path: Path) -> None:
    assert judged(tmp_path, WHOLE[name] + extra) is None


def with_thumbnail(data: bytes) -> bytes:
    """The photograph with a small JPEG, which has an end of its own, in a segment before its scan."""
    thumbnail = io.BytesIO()
    Image.new("RGB", (160, 120), "red").save(thumbnail, "JPEG")
    segment = b"Exif\0\0" + thumbnail.getvalue()
    return data[:2] + b"\xff\xe1" + (len(segment) + 2).to_bytes(2, "big") + segment + data[2:]


@pytest.mark.parametrize("kept", [2000, TAIL_BYTES + 500])
def test_a_thumbnails_end_is_not_the_images(kept: int, tmp_path: Path) -> None:
    data = with_thumbnail(WHOLE["jpeg"])
    assert judged(tmp_path, data) is None
    assert judged(tmp_path, data[: len(data) // 2][: max(kept, 1500)]) is not None


def test_markers_without_end_are_given_up() -> None:
    jpeg = with_thumbnail(WHOLE["jpeg"])
    assert first_scan(jpeg[:2] + b"\xff" * (MAX_STEPS - 100) + jpeg[2:]) is not None
    assert first_scan(jpeg[:2] + b"\xff" * MAX_STEPS + jpeg[2:]) is None


def test_the_photographs_of_the_tests_are_complete() -> None:
    for path in PHOTOS.glob("*/*.jpg"):
        assert why_incomplete(str(path), "jpeg", path.stat().st_size) is None


def test_damage_of_a_png_is_found_by_its_chunks() -> None:
    data = WHOLE["png"]
    assert find_png_damage(data) is None
    assert find_png_damage(data + b"junk") is None
    assert find_png_damage(data[:2000] + b"\1\2\3" + data[2003:]) == (
        f"damaged: the checksum of the chunk 'IDAT' at byte {data.index(b'IDAT') - 4} is another"
    )
    assert "is longer than the file" in str(find_png_damage(data[:2000] + data[-12:]))
    assert find_png_damage(data[:-12]) == "damaged: its chunks do not lead to IEND"
