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
    # 0.94 * 0.1875 + 6.6 * 0.098 ms become 0.94 * 0.0873 + 6.6 * 0.024, besides what each image takes.
    before, after = 0.823, 0.2405
    assert stage_ratios(PHOTO, SMALL, "opencv")[DECODE] == pytest.approx((after + 0.01) / (before + 0.01), abs=0.003)
    assert stage_ratios(PHOTO, SMALL, "pillow")[DECODE] == pytest.approx((after + 0.18) / (before + 0.18), abs=0.003)


def test_each_decoder_has_what_it_takes_for_each_image() -> None:
    small = Pictures(pixels=PHOTO.pixels, size_bytes=PHOTO.size_bytes, crop=64)
    ratios = {name: stage_ratios(PHOTO, small, name)[TRANSFORM] for name in ("opencv", "torchvision", "pillow")}
    assert ratios["opencv"] < ratios["pillow"] < ratios["torchvision"] < 1


def test_smaller_crops_leave_decoding_as_it_is() -> None:
    small = Pictures(pixels=PHOTO.pixels, size_bytes=PHOTO.size_bytes, crop=112)
    ratios = stage_ratios(PHOTO, small, "opencv")
    assert ratios[DECODE] == ratios[FETCH] == 1
    assert ratios[COLLATE] == pytest.approx(0.25)
    assert 0.25 < ratios[TRANSFORM] < 1


def test_handing_over_has_a_part_that_smaller_crops_leave_and_in_memory_that_is_used_again_nothing_else() -> None:
    small = Pictures(pixels=PHOTO.pixels, size_bytes=PHOTO.size_bytes, crop=112)
    assert stage_ratios(PHOTO, small, "opencv")[HAND_OVER] == pytest.approx(22_544 / 60_176)
    assert stage_ratios(PHOTO, small, "opencv", reuse_buffers=True)[HAND_OVER] == 1
    stages = [cost(HAND_OVER, ms=1.0)]
    assert load_ratio(stages, PHOTO, small, "opencv", reuse_buffers=True) == 1


def test_the_same_images_cost_the_same() -> None:
    stages = [cost(FETCH, ms=0.1), cost(DECODE, TRANSFORM, ms=2.0), cost(COLLATE, ms=0.2)]
    assert load_ratio(stages, PHOTO, PHOTO, "opencv") == pytest.approx(1)


def test_stages_count_for_as_much_as_they_take() -> None:
    mostly = load_ratio([cost(DECODE, ms=9.0), cost(TRANSFORM, ms=1.0)], PHOTO, SMALL, "opencv")
    hardly = load_ratio([cost(DECODE, ms=1.0), cost(TRANSFORM, ms=9.0)], PHOTO, SMALL, "opencv")
    assert mostly < hardly < 1


def test_a_stage_below_zero_by_chance_counts_as_none() -> None:
    assert load_ratio([cost(DECODE, ms=1.0), cost(COLLATE, ms=-0.1)], PHOTO, SMALL, "opencv") == pytest.approx(
        stage_ratios(PHOTO, SMALL, "opencv")[DECODE]
    )
    with pytest.raises(ValueError, match="no stage"):
        load_ratio([cost(COLLATE, ms=-0.1)], PHOTO, SMALL, "opencv")
