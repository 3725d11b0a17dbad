from __future__ import annotations

from typing import Any

import pytest

from pipetune.errors import UsageError
from pipetune.watching.options import MAX_READINGS, WatchOptions, check


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"interval_s": 0.05, "window_s": 1.0},
        {"interval_s": 60.0, "window_s": 1.0},
        {"interval_s": 3.0, "window_s": 3600.0},
        {"interval_s": 0.5, "window_s": 0.5 * MAX_READINGS},
        {"command": ("python", "train.py"), "gpu": 0, "fail_under": 1.0},
        {"pid": 12, "prometheus": ":9400"},
    ],
)
def test_values_in_range_pass(options: dict[str, Any]) -> None:
    check(WatchOptions(**options))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"interval_s": 0.04}, "--interval 0.04s is out of range"),
        ({"interval_s": 61.0}, "--interval 61s is out of range"),
        ({"interval_s": float("nan")}, "--interval nans is out of range"),
        ({"window_s": 0.9}, "--window 0.9s is out of range"),
        ({"interval_s": 5.0, "window_s": 3601.0}, "--window 3601s is out of range"),
        ({"interval_s": 0.1, "window_s": 121.0}, "--window 121s has 1210 readings, more than 1200"),
        ({"command": ("true",), "pid": 12}, "--pid 12 together with a job to start"),
        ({"fail_under": 0.0}, "--fail-under 0 is out of range"),
        ({"fail_under": 80.0}, "--fail-under 80 is out of range"),
        ({"gpu": -1}, "--gpu -1 is out of range"),
        ({"prometheus": "nowhere"}, "'nowhere'"),
    ],
)
def test_values_out_of_range_are_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        check(WatchOptions(**options))

    assert message in refused.value.message
    assert refused.value.hint


def test_the_hint_names_an_interval_that_passes() -> None:
    with pytest.raises(UsageError) as refused:
        check(WatchOptions(interval_s=0.5, window_s=1200.0))

    assert refused.value.hint == "choose an --interval of at least 1000ms"
    check(WatchOptions(interval_s=1.0, window_s=1200.0))
