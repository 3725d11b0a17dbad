from __future__ import annotations

import math
import random

import pytest

from pipetune.stats.drift import DRIFT_LIMIT, change_within, relative_change


def test_relative_change() -> None:
    assert relative_change(200.0, 160.0) == pytest.approx(-0.2)
    assert relative_change(200.0, 230.0) == pytest.approx(0.15)
    assert abs(relative_change(200.0, 190.0)) < DRIFT_LIMIT < abs(relative_change(200.0, 170.0))


@pytest.mark.parametrize("before", [0.0, -1.0, math.nan])
def test_relative_change_of_no_speed(before: float) -> None:
    with pytest.raises(ValueError, match="above zero"):
        relative_change(before, 100.0)


def windows(source: random.Random, count: int, scatter: float, change: float = 0.0) -> list[float]:
    return [(1 + change * place / count) * (1 + scatter * source.gauss(0, 1)) for place in range(count)]


def test_a_change_within_a_run_is_seen_beside_its_scatter() -> None:
    source = random.Random(2)
    assert change_within(windows(source, 12, 0.02, change=0.3)) == pytest.approx(-0.17, abs=0.05)
    assert change_within(windows(source, 12, 0.02, change=-0.3)) == pytest.approx(0.27, abs=0.05)
    assert change_within(windows(source, 12, 0.0, change=0.3)) is not None


def test_scatter_is_no_change() -> None:
    source = random.Random(3)
    seen = [change_within(windows(source, source.randint(9, 23), 0.1)) for _ in range(1000)]
    assert sum(change is not None for change in seen) <= 20


def test_a_small_change_and_few_windows_say_nothing() -> None:
    assert change_within([1.0] * 4 + [1.01] * 4 + [1.02] * 4) is None
    assert change_within([1.0] * 3 + [2.0] * 5) is None
