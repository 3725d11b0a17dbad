from __future__ import annotations

import numpy as np
import pytest

from pipetune.decoders.crop import Crop
from pipetune.decoders.reduced import divisor_for, reduced_size, window_of


@pytest.mark.parametrize(
    ("height", "width", "expected"), [(447, 900, 1), (448, 448, 2), (895, 2000, 2), (896, 900, 4), (1792, 1792, 8)]
)
def test_the_crop_stays_as_large_as_the_training_image(height: int, width: int, expected: int) -> None:
    assert divisor_for(Crop(0, 0, height, width, False), 224) == expected


def test_libjpeg_rounds_sizes_up() -> None:
    assert [reduced_size(length, 2) for length in (100, 101, 102)] == [50, 51, 51]


@pytest.mark.parametrize("divisor", [1, 2, 4])
def test_the_window_is_the_same_part_of_the_image(divisor: int) -> None:
    whole = np.arange(400 * 300).reshape(400, 300, 1)
    small = whole[::divisor, ::divisor]
    crop = Crop(40, 21, 200, 160, False)
    found = window_of(small, crop, divisor)
    assert found.shape[:2] == (200 // divisor, 160 // divisor)
    assert abs(int(found[0, 0, 0]) // 300 - 40) < divisor
    assert abs(int(found[0, 0, 0]) % 300 - 21) < divisor


def test_a_window_at_the_lower_right_corner_lies_within() -> None:
    crop = Crop(1, 3, 900, 898, False)
    image = np.zeros((reduced_size(901, 4), reduced_size(901, 4), 3))
    assert window_of(image, crop, 4).shape[:2] == (225, 224)
