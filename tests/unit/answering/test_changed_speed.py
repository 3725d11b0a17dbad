from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from pipetune.answering.changed_speed import AS_MEASURED, machine_factor
from pipetune.records.sweep import Outcome
from tests.fakes import outcome
from tests.unit.answering.bases import base as any_base

ASKED = "1 core"


def base(**changes: Any) -> Any:
    return any_base(**{"cpu_speed": 200.0, "measured_samples_per_s": 1000.0, **changes})


def asked(speed: float | None = 200.0, rate: float = 500.0) -> Outcome:
    return replace(outcome(rate=rate, machine_cpu_speed=speed), part=ASKED)


def again(rate: float, speed: float | None = 200.0) -> Outcome:
    return replace(asked(speed, rate), part=AS_MEASURED)


def test_the_loop_beside_an_answer_tells_where_nothing_else_does() -> None:
    assert machine_factor(base(), [asked(220.0)], ASKED) == pytest.approx(1.1)
    assert machine_factor(base(), [asked(220.0), asked(200.0)], ASKED) == pytest.approx(1.05)


@pytest.mark.parametrize(("times", "share"), [(1, 1 / 1.5), (2, 2 / 2.5), (8, 8 / 8.5)])
def test_the_loader_measured_again_tells_the_rest_the_more_the_oftener(times: int, share: float) -> None:
    outcomes = [asked(200.0), *[again(1200.0)] * times]
    assert machine_factor(base(), outcomes, ASKED) == pytest.approx(1.2**share)


def test_what_its_own_loop_has_told_is_not_counted_twice() -> None:
    outcomes = [asked(200.0), again(1100.0, speed=220.0)]  # its loop was as much faster as it
    assert machine_factor(base(), outcomes, ASKED) == pytest.approx(1.0)


def test_several_are_averaged() -> None:
    outcomes = [asked(), again(1250.0), again(800.0)]
    assert machine_factor(base(), outcomes, ASKED) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("changes", "rate"),
    [({"cold": True}, 1200.0), ({"measured_samples_per_s": 4900.0}, 4900.0 * 1.02), ({}, 4900.0)],
    ids=["storage", "the accelerator in the run", "the accelerator now"],
)
def test_of_what_something_else_sets_the_pace_it_tells_nothing(changes: dict[str, Any], rate: float) -> None:
    assert machine_factor(base(**changes), [asked(210.0), again(rate)], ASKED) == pytest.approx(1.05)


def test_without_a_loop_nothing_is_known() -> None:
    assert machine_factor(base(), [asked(None), again(1200.0)], ASKED) is None
    assert machine_factor(base(cpu_speed=None), [asked(), again(1200.0)], ASKED) is None
    assert machine_factor(base(), [again(1200.0)], ASKED) is None
    assert machine_factor(base(), [asked(220.0), again(1200.0, speed=None)], ASKED) == pytest.approx(1.1)


def test_more_than_half_is_not_believed() -> None:
    assert machine_factor(base(), [asked(1000.0)], ASKED) == 1.5
    assert machine_factor(base(), [asked(10.0)], ASKED) == pytest.approx(1 / 1.5)
    assert math.isfinite(machine_factor(base(), [asked(), again(1e-9)], ASKED) or math.nan)
