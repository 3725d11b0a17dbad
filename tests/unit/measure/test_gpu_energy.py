from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune.measure.gpu_energy import MAX_ERROR_FRAC, find_mean_power
from pipetune.records.observation import GpuReading, Reading
from tests.unit.measure.test_summary import reading

S = 10**9


def readings(*points: tuple[float, float | None]) -> list[Reading]:
    """Readings at times (s) with what the counter said (J)."""
    return [replace(reading(0), t_ns=round(t * S), gpu=GpuReading(energy_j=energy)) for t, energy in points]


def test_the_power_is_that_between_the_first_and_last_reading_of_the_phase() -> None:
    """300 W before the phase, 100 W in it, from 10 s to 12 s; between two readings of the counter it is not told."""
    told = readings(
        (9.0, 0.0),
        (9.5, 150.0),
        (10.0, 300.0),
        (10.3, None),
        (10.5, 350.0),
        (11.0, 400.0),
        (11.5, 450.0),
        (12.0, 500.0),
        (12.5, 900.0),
    )
    power = find_mean_power(told, (10 * S, 12 * S))
    assert power is not None
    assert power.watts == pytest.approx(100.0)
    assert power.error_frac == pytest.approx(0.5 / 2.0)  # how often it moved between two readings is not known


def test_a_phase_that_is_too_short_for_the_counter_has_no_power() -> None:
    told = readings((9.5, 0.0), (10.0, 10.0), (10.5, 20.0), (11.0, 30.0), (11.5, 40.0), (12.0, 50.0))
    assert 0.5 / 2.0 < MAX_ERROR_FRAC < 0.5 / 1.0
    assert find_mean_power(told, (10 * S, 11 * S)) is None
    assert find_mean_power(told, (10 * S, 12 * S)) is not None
    assert find_mean_power(told, (12 * S, 13 * S)) is None
    assert find_mean_power([], (10 * S, 12 * S)) is None


def test_a_counter_that_moves_rarely_makes_the_power_less_sure() -> None:
    """It moves once a second, and is asked twice: what stands still is no reading of the present energy."""
    steps = readings(*((0.5 * n, 100.0 * (n // 2)) for n in range(41)))
    power = find_mean_power(steps, (2 * S, 20 * S))
    assert power is not None
    assert power.watts == pytest.approx(100.0)
    assert power.error_frac == pytest.approx(1.0 / 18.0)
    assert find_mean_power(steps, (2 * S, 4 * S)) is None


def test_a_counter_that_began_anew_says_nothing() -> None:
    told = readings((9.5, 900.0), (10.0, 0.0), (11.0, 100.0), (12.0, 200.0))
    assert find_mean_power(told, (10 * S, 12 * S)) is None
