from __future__ import annotations

import pytest

from pipetune.records.sweep import Measurement
from pipetune.stats.noise import PRIOR, difference_by_chance, off_usual_speed, run_noise
from tests.fakes import measurement


def at_speeds(*speeds: float) -> list[Measurement | None]:
    return [measurement(machine_speed_before=speed, machine_speed_after=speed) for speed in speeds]


def test_nothing_known_is_the_prior() -> None:
    assert run_noise([]) == PRIOR
    assert run_noise(at_speeds(200.0)) == PRIOR
    assert run_noise([None, None]) == PRIOR


def test_a_quiet_machine_is_trusted_more_with_every_reading() -> None:
    few, many = run_noise(at_speeds(*[200.0] * 4)), run_noise(at_speeds(*[200.0] * 40))
    assert many < few < PRIOR
    assert many < 0.03


def test_a_restless_machine_widens_the_intervals() -> None:
    restless = run_noise(at_speeds(*[150.0, 250.0] * 10))
    assert restless == pytest.approx(0.84, abs=0.05)  # 2.5 x 1.48 x 25 %, less the prior


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
