from __future__ import annotations

import math
import random

import pytest

from pipetune.stats.intervals import differ, mean, median_interval, ratio_interval, share_interval, t95, wilson
from tests.fakes import measurement


def test_quantiles_of_t() -> None:
    assert t95(1) == 12.706
    assert t95(9) == 2.262
    assert t95(11) == 2.201
    assert t95(60) == pytest.approx(2.000, abs=0.002)
    assert t95(10**6) == pytest.approx(1.960, abs=0.001)


@pytest.mark.parametrize(("share", "count"), [(0.0, 10), (0.3, 7.5), (0.5, 100), (1.0, 3)])
def test_wilson_interval_holds_the_share(share: float, count: float) -> None:
    low, high = wilson(share, count)

    assert 0 <= low <= share <= high <= 1


def test_wilson_interval_as_published() -> None:
    # Wilson 1927 by way of Agresti and Coull 1998: 8 of 10 give 0.490 to 0.943.
    assert wilson(0.8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    # scipy.stats.binomtest(3, 20).proportion_ci(method="wilson")
    assert wilson(3 / 20, 20) == pytest.approx((0.052369, 0.360419), abs=1e-5)


def test_wilson_interval_of_no_samples_is_everything() -> None:
    assert wilson(0.5, 0) == (0.0, 1.0)


def test_interval_of_a_share_is_wider_for_values_that_come_in_bursts() -> None:
    alternating = [0.0, 1.0] * 100
    bursts = ([0.0] * 30 + [1.0] * 30) * 4
    assert share_interval(alternating, 0.5) == (0.5, 0.5)
    low, high = share_interval(bursts, 0.5)
    assert high - low > 0.2


def test_interval_of_a_share_stays_within_0_and_1_and_needs_ten_values() -> None:
    low, high = share_interval([0.0] * 18 + [1.0, 1.0], 0.1)
    assert low == 0.0
    assert 0.1 < high <= 1.0
    assert share_interval([0.5] * 9, 0.5) == (0.0, 1.0)


def test_interval_of_a_share_covers_the_truth_about_as_often_as_it_says() -> None:
    source, repeats = random.Random(3), 500
    covered = 0
    for _ in range(repeats):
        values = [source.random() for _ in range(60)]
        low, high = share_interval(values, sum(values) / len(values))
        covered += low <= 0.5 <= high
    assert 0.91 <= covered / repeats <= 0.985


def test_interval_of_a_ratio_adds_both_in_quadrature_on_a_log_scale() -> None:
    divisor = measurement(samples_per_s=200.0, ci95=(192.0, 208.0))
    low, high = ratio_interval(100.0, (97.0, 103.0), divisor)
    assert (low, high) == pytest.approx((0.5 / math.exp(0.05), 0.5 * math.exp(0.05)))
    assert ratio_interval(100.0, (0.0, 300.0), divisor)[0] == 0.0
    both = measurement(samples_per_s=200.0, ci95=(166.0, 234.0))
    assert ratio_interval(200.0, (166.0, 234.0), both) == pytest.approx((0.79, 1.27), abs=0.005)


def test_the_interval_of_the_reverse_ratio_is_the_reverse() -> None:
    one = measurement(samples_per_s=300.0, ci95=(210.0, 360.0))
    other = measurement(samples_per_s=100.0, ci95=(80.0, 125.0))
    low, high = ratio_interval(one.samples_per_s, one.ci95, other)
    back = ratio_interval(other.samples_per_s, other.ci95, one)
    assert back == pytest.approx((1 / high, 1 / low))


def test_intervals_of_ratios_cover_the_truth_as_often_as_they_say() -> None:
    """Two rates with a standard deviation of 9 % each: +-17 %."""
    draw, repeats = random.Random(8), 4000
    below = above = 0
    for _ in range(repeats):
        one, other = (100 * math.exp(draw.gauss(0, 0.09)) for _ in range(2))
        half = 1.96 * 0.09
        divisor = measurement(samples_per_s=other, ci95=(other * (1 - half), other * (1 + half)))
        low, high = ratio_interval(one, (one * (1 - half), one * (1 + half)), divisor)
        below += high < 1
        above += low > 1
    # As often on one side as on the other; symmetric ones were wrong three times as often on one side.
    assert 0.015 < below / repeats < 0.035
    assert 0.015 < above / repeats < 0.035


def test_interval_of_a_median_narrows_with_repeats() -> None:
    same = (90.0, 110.0)
    assert median_interval([100.0] * 2, [same] * 2) == pytest.approx((100 - 10 / math.sqrt(2), 100 + 10 / math.sqrt(2)))
    assert median_interval([100.0] * 4, [same] * 4) == pytest.approx((100 - 6, 100 + 6))


def test_interval_of_a_median_covers_the_spread_of_the_values() -> None:
    assert median_interval([80.0, 120.0], [(79.0, 81.0), (119.0, 121.0)]) == (80.0, 120.0)


@pytest.mark.parametrize(
    ("one", "one_ci95", "other", "other_ci95", "answer"),
    [
        (100, (90, 110), 130, (120, 140), True),
        (100, (90, 110), 112, (105, 119), False),  # 12 apart; chance explains hypot(10, 7)
        (100, (90, 110), 109, (108, 110), False),  # in the other's interval
        (100, (100, 100), 100, (100, 100), False),
    ],
)
def test_two_estimates_differ_beyond_chance(
    one: float, one_ci95: tuple[float, float], other: float, other_ci95: tuple[float, float], answer: bool
) -> None:
    assert differ(one, one_ci95, other, other_ci95) is answer
    assert differ(other, other_ci95, one, one_ci95) is answer


def test_mean_of_the_measured_values() -> None:
    assert mean([1.0, None, 3.0]) == 2.0
    assert mean([None]) is None
    assert mean([]) is None
