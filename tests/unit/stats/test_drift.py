from __future__ import annotations

import math

import pytest

from pipetune.stats.drift import DRIFT_LIMIT, relative_change


def test_relative_change() -> None:
    assert relative_change(200.0, 160.0) == pytest.approx(-0.2)
    assert relative_change(200.0, 230.0) == pytest.approx(0.15)
    assert abs(relative_change(200.0, 190.0)) < DRIFT_LIMIT < abs(relative_change(200.0, 170.0))


@pytest.mark.parametrize("before", [0.0, -1.0, math.nan])
def test_relative_change_of_no_speed(before: float) -> None:
    with pytest.raises(ValueError, match="above zero"):
        relative_change(before, 100.0)
