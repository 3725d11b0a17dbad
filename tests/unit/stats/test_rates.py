from __future__ import annotations

import math
import random
from statistics import fmean, median

import pytest

from pipetune.records.sweep import StepTime
from pipetune.stats.intervals import t95
from pipetune.stats.rates import interval_half, mean_of_blocks, rate_interval, window_durations, within_error


def step(end_s: float) -> StepTime:
    return StepTime(
        t_start_ns=0, data_wait_s=0, h2d_s=None, compute_s=0, idle_s=0, t_end_ns=round(end_s * 1e9), samples=1
    )


def test_windows_span_from_end_to_end_and_leave_out_the_incomplete_last() -> None:
    ends = [step(end) for end in (1, 2, 4, 5, 9, 10, 12)]
    assert window_durations(ends, began_ns=0, window_batches=2) == [2.0, 3.0, 5.0]
    assert window_durations(ends[:1], began_ns=0, window_batches=2) == []


def test_windows_of_no_whole_number_of_batches_are_the_same_in_each_epoch() -> None:
    ends = [step(end) for end in range(1, 135)]
    assert window_durations(ends, began_ns=0, window_batches=67 / 4) == [17, 17, 16, 17, 17, 17, 16, 17]


def test_what_parts_of_an_epoch_differ_by_is_no_scatter() -> None:
    of_parts, noise = [1.0, 1.0, 1.0, 1.6], [0.01, -0.02, 0.02, -0.01, -0.01, 0.02, -0.02, 0.01]
    durations = [of_parts[at % 4] + change for at, change in enumerate(noise)]
    error, freedom = within_error(durations, 4)
    assert error == pytest.approx(math.sqrt(sum(x**2 for x in noise) / 4 / 8) / fmean(durations), rel=0.01)
    assert freedom == 4
    assert within_error(durations)[0] > 5 * error
    assert within_error(durations[:5], 4) == within_error(durations[:5]), "of one epoch no scatter is known"


def test_intervals_of_two_epochs_cover_the_truth_about_as_often_as_they_say() -> None:
    source = random.Random(8)
    of_parts, covered, repeats = [1.0, 1.0, 1.0, 1.6], 0, 2000
    for _ in range(repeats):
        durations = [of_parts[at % 4] * (1 + 0.05 * source.gauss(0, 1)) for at in range(8)]
        _, low, high = rate_interval(durations, 115, 0.0, parts=4)
        covered += low <= 100 <= high
    assert 0.93 <= covered / repeats <= 0.985


def test_rate_is_samples_over_mean_time() -> None:
    rate, low, high = rate_interval([2.0, 2.0, 2.0, 2.0], samples_per_window=100, run_noise=0.0)
    assert (rate, low, high) == (50.0, 50.0, 50.0)


def test_one_window_is_as_uncertain_as_repeats_are() -> None:
    rate, low, high = rate_interval([2.0], samples_per_window=100, run_noise=0.05)
    assert rate == 50.0
    assert high - rate == pytest.approx(50 * 1.96 * 0.05)
    assert rate - low == pytest.approx(high - rate)


def test_the_variances_within_and_between_runs_are_added() -> None:
    """With the degrees of freedom of their sum: Student's t of a few windows counts for as much as they decide."""
    durations = [1.0, 1.1, 0.9, 1.05, 0.95, 1.0]
    error, freedom = within_error(durations)
    both = error**2 + 0.03**2
    assert interval_half(durations, 0.03) == pytest.approx(t95(freedom * (both / error**2) ** 2) * math.sqrt(both))
    rate, _, high = rate_interval(durations, 10, 0.03)
    assert (high - rate) / rate == pytest.approx(interval_half(durations, 0.03))
    assert interval_half(durations, 0.0) == pytest.approx(t95(freedom) * error)
    assert interval_half(durations, 10.0) == pytest.approx(1.96 * 10, rel=0.01)
    assert interval_half(durations, 0.03) < math.hypot(interval_half(durations, 0.0), 1.96 * 0.03)


def test_an_early_end_widens_what_the_run_itself_tells() -> None:
    durations = [1.0, 1.1, 0.9, 1.05, 0.95, 1.0]
    assert interval_half(durations, 0.0, 1.2) == pytest.approx(1.2 * interval_half(durations, 0.0))


def test_interval_never_reaches_below_zero() -> None:
    assert rate_interval([0.1, 30.0, 0.1], 10, 0.0)[1] == 0.0


@pytest.mark.parametrize(("correlation", "least"), [(0.0, 0.95), (0.2, 0.93), (0.5, 0.86)])
def test_intervals_cover_the_truth_about_as_often_as_they_say(correlation: float, least: float) -> None:
    source = random.Random(5)
    covered, repeats = 0, 2000
    for _ in range(repeats):
        durations, state = [], source.gauss(0, 1)
        for _ in range(12):
            state = correlation * state + math.sqrt(1 - correlation**2) * source.gauss(0, 1)
            durations.append(1 + 0.05 * state)
        _, low, high = rate_interval(durations, 100, 0.0)
        covered += low <= 100 <= high
    assert least <= covered / repeats <= 0.985


def test_independent_windows_pay_little_for_the_correction() -> None:
    source = random.Random(6)
    ratios = []
    for _ in range(500):
        durations = [1 + 0.05 * source.gauss(0, 1) for _ in range(12)]
        rate, _, high = rate_interval(durations, 100, 0.0)
        spread = math.sqrt(sum((d - fmean(durations)) ** 2 for d in durations) / 11)
        ratios.append((high - rate) / rate / (t95(11) * spread / math.sqrt(12) / fmean(durations)))
    # Few pay much: those whose windows resemble their neighbours by chance.
    assert median(ratios) < 1.25
    assert fmean(ratios) < 1.4


def test_the_mean_of_blocks_is_surer_than_each_of_them() -> None:
    rate, (low, high) = mean_of_blocks([(100.0, (90.0, 110.0)), (110.0, (100.0, 120.0))])
    assert rate == 105.0
    assert (low, high) == pytest.approx((105 - 10 / 2**0.5, 105 + 10 / 2**0.5))
    assert mean_of_blocks([(1.0, (-3.0, 5.0))]) == (1.0, (0.0, 5.0))
