from __future__ import annotations

import math
import random
from statistics import variance
from typing import Any

import pytest

from pipetune.records.sweep import Measurement
from pipetune.stats.noise import (
    PRIOR,
    device_noise,
    difference_by_chance,
    felt_frac,
    noise_of_run,
    off_usual_speed,
    run_noise,
    scatter_of_runs,
)  # fmt: skip
from tests.fakes import measurement


def at_speeds(*speeds: float) -> list[Measurement | None]:
    return [measurement(machine_speed_before=speed, machine_speed_after=speed) for speed in speeds]


#: What Student's t with three degrees of freedom makes of a standard deviation, per the normal quantile.
T3 = 3.182 / 1.96


def repeats(*rates: float, **changes: Any) -> list[Measurement]:
    """Measurements of one candidate; the accelerator waits a fifth of the time."""
    return [measurement(samples_per_s=rate, **changes) for rate in rates]


def test_nothing_known_is_the_prior() -> None:
    assert run_noise([]) == pytest.approx(T3 * PRIOR)
    assert run_noise(at_speeds(200.0)) == run_noise([])
    assert run_noise([None, None]) == run_noise([])
    assert run_noise([], [repeats(1000.0)]) == run_noise([])


def test_a_quiet_machine_is_trusted_more_with_every_reading() -> None:
    few, many = run_noise(at_speeds(*[200.0] * 4)), run_noise(at_speeds(*[200.0] * 40))
    assert many < few < run_noise([])


def test_the_decode_loop_alone_never_tells_all() -> None:
    """Rates scatter up to four times as much as its readings do: not even a thousand of them show a quiet machine."""
    assert run_noise(at_speeds(*[200.0] * 1000)) > 0.035


def test_a_restless_machine_widens_the_intervals() -> None:
    # 2.5 x 1.48 x 25 % = 93 %, which counts about as much as the prior does.
    assert run_noise(at_speeds(*[150.0, 250.0] * 10)) > 0.5


def test_repetitions_of_a_candidate_count_in_full() -> None:
    """Forty pairs that are 4 % apart scatter by 2.8 %."""
    pairs = [repeats(1000.0, 1000.0 * math.exp(0.04)) for _ in range(40)]
    assert run_noise(at_speeds(*[200.0] * 40), pairs) == pytest.approx(0.04 / 2**0.5, rel=0.1)
    quiet = [repeats(1000.0, 1000.0) for _ in range(40)]
    assert run_noise(at_speeds(*[200.0] * 40), quiet) < 0.015
    restless = [repeats(800.0, 1000.0)] * 3
    assert run_noise(at_speeds(*[200.0] * 12), restless) > run_noise(at_speeds(*[200.0] * 12))


def test_what_the_steps_explain_is_no_scatter_between_runs() -> None:
    pairs = [repeats(1000.0, 1060.0, within_error_frac=0.04)] * 20
    assert run_noise([], pairs) < 0.6 * run_noise([], [repeats(1000.0, 1060.0)] * 20)


def test_one_disturbed_run_does_not_hide_the_scatter_of_the_others() -> None:
    """Its steps scattered so much that they would explain anything, though its rate is that of the others."""
    rates = [1000.0, 1100.0, 900.0, 1050.0, 950.0, 1100.0, 900.0, 1000.0]
    errors = [0.02] * 7 + [0.5]
    group = [measurement(samples_per_s=r, within_error_frac=e) for r, e in zip(rates, errors, strict=True)]
    assert run_noise(at_speeds(*[200.0] * 8), [group] * 5) > 0.07


def test_one_disturbed_run_does_not_widen_the_intervals_of_the_others() -> None:
    """Its rate is far off, as its own interval says."""
    group = repeats(1000.0, 1030.0, 970.0, 1000.0, 1020.0, 980.0, within_error_frac=0.01)
    disturbed = measurement(samples_per_s=600.0, within_error_frac=0.3)
    calm = run_noise([], [group] * 5)
    assert run_noise([], [[*group, disturbed], *[group] * 4]) == pytest.approx(calm, rel=0.05)
    # As far off, and sure of it: that is scatter between runs.
    sure = measurement(samples_per_s=600.0, within_error_frac=0.01)
    assert run_noise([], [[*group, sure], *[group] * 4]) > 2 * calm


def test_without_scatter_within_runs_the_estimate_is_the_plain_variance() -> None:
    groups = [repeats(1000.0, 1060.0, 990.0), repeats(500.0, 530.0)]
    logs = [[math.log(m.samples_per_s) for m in group] for group in groups]
    squares = sum((len(group) - 1) * variance(group) for group in logs)
    expected = (3 * PRIOR**2 + squares) / (3 + 3)
    assert scatter_of_runs([], groups) == pytest.approx(math.sqrt(expected), rel=1e-3)


def test_repetitions_that_the_accelerator_paced_say_nothing_of_loaders() -> None:
    fed = [repeats(1000.0, 1000.0, accelerator_idle_frac=0.01)] * 20
    assert run_noise([], fed) == run_noise([])
    slowed = [repeats(1000.0, 1000.0, accelerator_idle_frac=0.01, step_slower_frac=0.08)] * 20
    assert run_noise([], slowed) < run_noise([])


@pytest.mark.parametrize("true", [0.02, 0.05, 0.08])
def test_intervals_of_repetitions_cover_the_truth(true: float) -> None:
    """Sweeps with a dozen candidates, of which three are repeated; a further measurement lies within the interval."""
    draw, sweeps, covered = random.Random(4), 1000, 0
    for _ in range(sweeps):
        speeds = at_speeds(*(200 * math.exp(draw.gauss(0, true / 2.5)) for _ in range(12)))
        groups = [repeats(*(1000 * math.exp(draw.gauss(0, true)) for _ in range(count))) for count in (2, 2, 3)]
        covered += abs(draw.gauss(0, true)) <= 1.96 * run_noise(speeds, groups)
    assert covered / sweeps >= 0.92


def ceilings(*rates: float) -> list[Measurement]:
    return [measurement(samples_per_s=rate) for rate in rates]


def test_a_devices_scatter_begins_with_what_is_usual_for_its_kind() -> None:
    assert device_noise([], "cuda") == device_noise(ceilings(1000.0), "cpu") == pytest.approx(T3 * 0.015)
    assert device_noise([], "emulated") == pytest.approx(0.005, abs=0.0002)


def test_a_devices_scatter_is_that_of_its_ceilings() -> None:
    assert device_noise(ceilings(*[1000.0] * 5), "cuda") < 0.6 * device_noise([], "cuda")
    assert device_noise(ceilings(*[1000.0, 1050.0] * 20), "cuda") == pytest.approx(0.05 / 2**0.5, rel=0.06)
    # A clock that falls by a fifth over twenty ceilings does not scatter.
    assert device_noise(ceilings(*(1000 - 10 * n for n in range(20))), "cuda") < 0.013


def test_the_loaders_noise_counts_where_it_idles_or_slows_the_accelerator() -> None:
    assert noise_of_run(0.08, 0.01, idle_frac=0.0) == 0.01
    assert noise_of_run(0.08, 0.01, idle_frac=0.05) == pytest.approx(math.hypot(0.08, 0.01))
    assert noise_of_run(0.08, 0.01, idle_frac=0.0, step_slower_frac=0.08) == pytest.approx(math.hypot(0.08, 0.01))
    assert noise_of_run(0.08, 0.01, idle_frac=0.0, step_slower_frac=0.01) == pytest.approx(math.hypot(0.016, 0.01))
    assert noise_of_run(0.08, 0.01, idle_frac=0.0, step_slower_frac=-0.1) == 0.01


def test_one_slow_moment_does_not_widen_all_that_follows() -> None:
    quiet = at_speeds(*[200.0, 201.0] * 5)
    assert run_noise([*quiet, *at_speeds(100.0)]) == pytest.approx(run_noise(quiet), abs=0.005)


def test_failures_are_passed_over() -> None:
    assert run_noise([*at_speeds(200.0, 210.0), None]) == run_noise(at_speeds(200.0, 210.0))


def test_a_slow_moment_stands_out_against_the_sweep() -> None:
    usual = at_speeds(200.0, 202.0, 198.0, 140.0)
    slow = usual[-1]
    assert slow is not None
    assert off_usual_speed(slow, usual) == pytest.approx(140 / 199 - 1)
    assert off_usual_speed(slow, usual[:2]) == 0.0


def test_chance_makes_smaller_differences_of_more_repeats() -> None:
    assert difference_by_chance(0.05) == pytest.approx(1.96 * 0.05 * 2**0.5)
    assert difference_by_chance(0.05, repeats=4) == pytest.approx(difference_by_chance(0.05) / 2)


def test_a_rate_follows_the_machines_speed_as_far_as_cores_are_used_or_waited_for() -> None:
    assert felt_frac(measurement(cores_used=0.1, step_cores=0.05, run_delay_frac=0.2)) == pytest.approx(0.35)
    assert felt_frac(measurement(cores_used=0.1, step_cores=None, run_delay_frac=None)) == pytest.approx(0.1)
    assert felt_frac(measurement(cores_used=3.0, step_cores=0.5)) == 1.0
    assert felt_frac(measurement(cores_used=None)) == 1.0, "not known"


def test_a_restless_machine_says_nothing_of_what_does_not_feel_it() -> None:
    restless = at_speeds(*[150.0, 250.0] * 10)
    assert run_noise(restless, felt=0.0) == run_noise([])
    assert run_noise([], felt=0.0) < run_noise(restless, felt=0.3) < run_noise(restless)
