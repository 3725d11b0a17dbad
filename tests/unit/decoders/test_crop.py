from __future__ import annotations

import math
from statistics import fmean

import numpy as np
import pytest

from pipetune.decoders.crop import draw_crop, draw_crops


def test_the_same_seed_and_ticket_give_the_same_window() -> None:
    assert draw_crop(1, 2, 300, 400) == draw_crop(1, 2, 300, 400)
    assert draw_crop(1, 2, 300, 400) != draw_crop(1, 3, 300, 400)
    assert draw_crop(1, 2, 300, 400) != draw_crop(2, 2, 300, 400)


@pytest.mark.parametrize(("height", "width"), [(300, 400), (1, 1), (2, 900), (900, 2), (333, 333)])
def test_windows_lie_inside_the_image(height: int, width: int) -> None:
    for sample_index in range(500):
        crop = draw_crop(0, sample_index, height, width)
        assert 0 <= crop.top <= height - crop.height
        assert 0 <= crop.left <= width - crop.width
        assert crop.height >= 1 <= crop.width


def test_the_distribution_is_torchvisions() -> None:
    torch = pytest.importorskip("torch", reason="what is tested handles tensors")
    from torchvision.transforms import RandomResizedCrop

    torch.manual_seed(0)
    image = torch.empty((3, 300, 400), device="meta")
    theirs = [RandomResizedCrop.get_params(image, (0.08, 1.0), (3 / 4, 4 / 3)) for _ in range(4000)]
    ours = [draw_crop(9, sample_index, 300, 400) for sample_index in range(4000)]

    def area(crops: list[tuple[int, ...]]) -> float:
        return fmean(crop[2] * crop[3] / 120_000 for crop in crops)

    def aspect(crops: list[tuple[int, ...]]) -> float:
        return fmean(math.log(crop[3] / crop[2]) for crop in crops)

    assert area(ours) == pytest.approx(area(theirs), abs=0.02)
    assert aspect(ours) == pytest.approx(aspect(theirs), abs=0.02)
    assert fmean(crop.top for crop in ours) == pytest.approx(fmean(crop[0] for crop in theirs), abs=4)
    assert fmean(crop.flip for crop in ours) == pytest.approx(0.5, abs=0.03)


def test_negative_and_huge_seeds_are_fine() -> None:
    assert draw_crop(2**80, 2**70, 10, 10) == draw_crop(2**80, 2**70, 10, 10)


#: Widths and heights of images: as photographs have them, and such that most or all attempts fail.
SIZES = ((400, 300), (300, 400), (1, 1), (900, 2), (2, 900), (333, 333), (5000, 40), (31, 8000), (20_000, 15_000))


@pytest.mark.parametrize("seed", [0, 7, 2**32 - 1, 2**80, -3])
def test_the_windows_of_many_samples_are_those_of_each(seed: int) -> None:
    count = 3000
    indices = [1_281_167 * (number % 5) + 17 * number for number in range(count)]
    sizes = np.array([SIZES[number % len(SIZES)] for number in range(count)], np.int32)
    each = [
        draw_crop(seed, index, int(height), int(width)) for index, (width, height) in zip(indices, sizes, strict=True)
    ]
    assert draw_crops(seed, indices, sizes).tolist() == [list(crop) for crop in each]


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9])
def test_the_windows_of_few_samples_too(count: int) -> None:
    sizes = np.array([(2, 900)] * count, np.int32).reshape(count, 2)
    crops = draw_crops(3, list(range(count)), sizes)
    assert crops.shape == (count, 5)
    assert crops.tolist() == [list(draw_crop(3, index, 900, 2)) for index in range(count)]
