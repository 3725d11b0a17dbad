from __future__ import annotations

import pytest

from pipetune.packing.fidelity import compare_crops, enlarged_frac
from tests.bad_images import jpeg


@pytest.mark.parametrize(
    ("size", "crop", "share"),
    [
        ((500, 375), 224, 0.25), ((341, 256), 224, 0.64), ((213, 160), 224, 1.0), ((500, 375), 128, 0.02),
        ((341, 256), 128, 0.15),
    ],
)  # fmt: skip
def test_crops_that_are_enlarged(size: tuple[int, int], crop: int, share: float) -> None:
    """The shares of the research, which were counted."""
    assert enlarged_frac([size], crop) == pytest.approx(share, abs=0.015)


def test_no_image_has_no_crops() -> None:
    assert enlarged_frac([], 224) == 0
    assert compare_crops([], 224) is None


def test_the_same_image_is_equal_and_a_poorer_one_is_further_away() -> None:
    data = jpeg(quality=98)
    same = compare_crops([(data, data)], 96)
    good = compare_crops([(data, jpeg(quality=90))], 96)
    poor = compare_crops([(data, jpeg(quality=20))], 96)
    assert same is not None
    assert good is not None
    assert poor is not None
    assert (same.psnr_db, same.psnr_db_10, same.ssim) == (99, 99, pytest.approx(1))
    assert same.psnr_db > good.psnr_db > poor.psnr_db
    assert good.ssim > poor.ssim > 0
    assert good.psnr_db_10 <= good.psnr_db
    assert good.crops == 4


def test_damaged_exif_which_no_loader_looks_at_is_no_error() -> None:
    """Pillow's own turning ends with a SyntaxError, and the plan of every pack would."""
    plain = jpeg(quality=98)
    exif = b"Exif\0\0" + b"no TIFF header"
    odd = plain[:2] + b"\xff\xe1" + (len(exif) + 2).to_bytes(2, "big") + exif + plain[2:]
    found = compare_crops([(odd, plain)], 64)
    assert found is not None
    assert found.psnr_db == 99


def test_what_pillow_does_not_decode_is_left_out() -> None:
    good = jpeg(quality=98)
    found = compare_crops([(good, good), (b"not an image", good), (good[:300], good)], 64)
    assert found is not None
    assert found.crops == 4


def test_turned_images_are_compared_upright() -> None:
    from PIL import Image

    exif = Image.Exif()
    exif[0x0112] = 6
    data = jpeg(quality=98, exif=exif)
    found = compare_crops([(data, data)], 64)
    assert found is not None
    assert found.psnr_db == 99
