from __future__ import annotations

import pytest

from pipetune.predicting.changed_images import Pictures, load_ratio, stage_ratios
from pipetune.records.explanation import COLLATE, DECODE, FETCH, HAND_OVER, TRANSFORM, StageCost

PHOTO = Pictures(pixels=187_500, size_bytes=98_000, crop=224)
SMALL = Pictures(pixels=87_300, size_bytes=24_000, crop=224)


def cost(*stages: str, ms: float) -> StageCost:
    return StageCost(
        stages=stages, cpu_s_per_1000_samples=ms, ci95=(ms, ms), samples_per_s=1000.0, rate_ci95=(900.0, 1100.0)
    )


def test_a_copy_of_256_px_decodes_in_a_fraction_of_the_time() -> None:
    ratio = stage_ratios(PHOTO, SMALL)[DECODE]
    # A tenth is the same for each image; (0.94 * 0.0873 + 6.6 * 0.024) / (0.94 * 0.1875 + 6.6 * 0.098) of the rest.
    assert ratio == pytest.approx(0.1 + 0.9 * 0.292, abs=0.003)


def test_smaller_crops_leave_decoding_as_it_is() -> None:
    small = Pictures(pixels=PHOTO.pixels, size_bytes=PHOTO.size_bytes, crop=112)
    ratios = stage_ratios(PHOTO, small)
    assert ratios[DECODE] == ratios[FETCH] == 1
    assert ratios[COLLATE] == ratios[HAND_OVER] == pytest.approx(0.25)
    assert 0.25 < ratios[TRANSFORM] < 1


def test_the_same_images_cost_the_same() -> None:
    stages = [cost(FETCH, ms=0.1), cost(DECODE, TRANSFORM, ms=2.0), cost(COLLATE, ms=0.2)]
    assert load_ratio(stages, PHOTO, PHOTO) == pytest.approx(1)


def test_stages_count_for_as_much_as_they_take() -> None:
    mostly = load_ratio([cost(DECODE, ms=9.0), cost(TRANSFORM, ms=1.0)], PHOTO, SMALL)
    hardly = load_ratio([cost(DECODE, ms=1.0), cost(TRANSFORM, ms=9.0)], PHOTO, SMALL)
    assert mostly < hardly < 1


def test_a_stage_below_zero_by_chance_counts_as_none() -> None:
    assert load_ratio([cost(DECODE, ms=1.0), cost(COLLATE, ms=-0.1)], PHOTO, SMALL) == pytest.approx(
        stage_ratios(PHOTO, SMALL)[DECODE]
    )
    with pytest.raises(ValueError, match="no stage"):
        load_ratio([cost(COLLATE, ms=-0.1)], PHOTO, SMALL)
