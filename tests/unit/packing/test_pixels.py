from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image, ImageOps

from pipetune.packing.options import Pixels
from pipetune.packing.pixels import Rejected, pack_image
from tests.bad_images import broken_png, jpeg

SMALL = Pixels(mode="shorter-edge", edge=64)

pytestmark = pytest.mark.usefixtures("jpeg_roi")


def opened(data: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(data))
    image.load()
    return image


def turned(orientation: int, **options: object) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return jpeg(exif=exif, **options)


@pytest.mark.parametrize("format_", ["JPEG", "PNG", "WEBP"])
def test_a_file_that_keeps_its_pixels_keeps_its_bytes(format_: str) -> None:
    data = jpeg(format=format_)
    for pixels in (Pixels(), Pixels(mode="shorter-edge", edge=5000)):
        found = pack_image(data, pixels)
        assert found.data == data
        assert found.done == "copied"
        assert (found.width, found.height) == opened(data).size
        assert found.ending == {"JPEG": "jpg", "PNG": "png", "WEBP": "webp"}[format_]


@pytest.mark.parametrize("format_", ["PNG", "WEBP"])
def test_other_formats_become_jpegs_where_they_are_made_smaller(format_: str) -> None:
    found = pack_image(jpeg(format=format_, mode="RGBA"), SMALL)
    image = opened(found.data)
    assert (image.format, image.mode, min(image.size)) == ("JPEG", "RGB", 64)
    assert found.done == "converted"
    assert found.ending == "jpg"
    assert (found.width, found.height) == image.size


def test_cmyk_becomes_rgb_and_grey_stays_grey() -> None:
    cmyk = pack_image(jpeg(mode="CMYK"), SMALL)
    assert opened(cmyk.data).mode == "RGB"
    assert cmyk.done == "resized"
    assert opened(pack_image(jpeg(mode="L"), SMALL).data).mode == "L"
    assert opened(pack_image(jpeg(mode="L", format="PNG"), SMALL).data).mode == "L"


def test_the_orientation_stays_a_tag() -> None:
    for pixels in (SMALL, Pixels(mode="lossless"), Pixels()):
        found = pack_image(turned(6), pixels)
        assert found.orientation == 6
        assert opened(found.data).getexif()[0x0112] == 6


@pytest.mark.parametrize("orientation", range(2, 9))
@pytest.mark.parametrize(
    "pixels", [Pixels(upright=True, quality=95), Pixels(mode="shorter-edge", edge=64, upright=True)]
)
def test_upright_pixels_need_no_tag(orientation: int, pixels: Pixels) -> None:
    data = turned(orientation, quality=95, subsampling=0)
    found = pack_image(data, pixels)
    wanted = ImageOps.exif_transpose(opened(data)).convert("RGB")
    image = opened(found.data)
    assert found.done == ("turned" if pixels.edge else "turned_lossless")
    assert found.orientation == 1
    assert 0x0112 not in image.getexif()
    assert image.size == (found.width, found.height)
    smaller = wanted.resize(image.size, Image.Resampling.BICUBIC)
    assert np.abs(np.asarray(image, float) - np.asarray(smaller, float)).mean() < 4


def odd(orientation: int) -> bytes:
    """A turned image whose edges are no multiples of its blocks."""
    exif, out = Image.Exif(), io.BytesIO()
    exif[0x0112] = orientation
    opened(jpeg()).resize((83, 61)).save(out, "JPEG", quality=95, exif=exif)
    return out.getvalue()


def test_edges_that_are_no_multiples_of_blocks_are_encoded_anew_or_keep_their_tag() -> None:
    anew = pack_image(odd(6), Pixels(upright=True, quality=95))
    assert (anew.done, anew.orientation, anew.width, anew.height) == ("turned", 1, 61, 83)
    kept = pack_image(odd(6), Pixels(mode="lossless", upright=True))
    assert (kept.done, kept.orientation, kept.width, kept.height) == ("transcoded", 6, 83, 61)
    turned_ = pack_image(turned(6, subsampling=0), Pixels(mode="lossless", upright=True))
    assert (turned_.done, turned_.orientation) == ("turned_lossless", 1)


def test_an_upright_image_is_not_encoded_anew() -> None:
    data = jpeg()
    assert pack_image(data, Pixels(upright=True)).data == data


def test_without_loss_only_jpegs_change() -> None:
    assert pack_image(jpeg(progressive=True), Pixels(mode="lossless")).done == "transcoded"
    assert pack_image(jpeg(format="PNG"), Pixels(mode="lossless")).done == "copied"


@pytest.mark.parametrize(
    ("data", "pixels", "reason"),
    [
        (b"no image", Pixels(), "not"), (jpeg()[:3000], Pixels(), "cut off"), (jpeg()[:3000], SMALL, "does not decode"),
        (jpeg()[:3000], Pixels(mode="lossless"), "does not decode"), (broken_png(), SMALL, "does not decode"),
        (b"GIF89a" + bytes(50), Pixels(), "a GIF"), (broken_png(), Pixels(), "damaged: the checksum of the chunk"),
        (broken_png(), Pixels(mode="lossless"), "damaged: the checksum of the chunk"),
    ],
)  # fmt: skip
def test_what_cannot_be_packed_is_rejected_with_a_reason(data: bytes, pixels: Pixels, reason: str) -> None:
    with pytest.raises(Rejected, match=reason):
        pack_image(data, pixels)
