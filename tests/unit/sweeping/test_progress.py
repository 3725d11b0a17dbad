from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from pipetune import search
from pipetune.records.sweep import THOROUGH, Outcome
from pipetune.sweeping.progress import LOOK_AHEAD_S, Progress, likely_outcome, progress
from tests.fakes import outcome
from tests.unit.search.test_effort import NORMAL, SPACE, measured, run


def after(outcomes: list[Outcome], effort: str = "normal", **options: object) -> Progress:
    return progress(SPACE, outcomes, replace(NORMAL, effort=effort), 0, clock=lambda: 0.0, **options)  # type: ignore[arg-type]


def seconds(outcomes: list[Outcome], effort: str = "normal") -> float:
    left = after(outcomes, effort).left
    assert left is not None
    return left.seconds


def test_nothing_is_known_before_the_first_candidate() -> None:
    ceiling = outcome("pillow", 0, role="ceiling")
    assert after([ceiling]) == Progress(
        best=None, suffices=False, default_suffices=False, only_savings=False, left=None
    )


def test_the_best_so_far() -> None:
    outcomes = run(ceiling=1200.0)
    seen = after(outcomes)
    assert seen.best is not None
    assert seen.best.candidate.backend == "jpeg-roi"
    assert seen.suffices
    assert not seen.default_suffices
    assert seen.left is not None
    assert seen.left.seconds == 0
    assert after(run(ceiling=200.0)).default_suffices


def test_only_savings_are_looked_for_where_the_default_suffices_and_may_be_recommended() -> None:
    outcomes = run(ceiling=200.0)
    assert after(outcomes).only_savings
    assert not after(outcomes, grid=True).only_savings, "everything is measured"
    without_default = replace(SPACE, workers=(1, 2))
    seen = progress(without_default, outcomes, NORMAL, 0, clock=lambda: 0.0)
    assert (seen.default_suffices, seen.only_savings) == (True, False)


@pytest.mark.parametrize("ceiling", [200.0, 1200.0, 6000.0, 20_000.0])
@pytest.mark.parametrize("effort", ["normal", THOROUGH])
def test_the_time_left_is_about_right_where_the_machine_is_as_expected(ceiling: float, effort: str) -> None:
    outcomes = [replace(o, wall_s=5.0) for o in run(ceiling=ceiling, goal=replace(NORMAL, effort=effort))]
    half = max(1, len(outcomes) // 2)
    truth = 5.0 * (len(outcomes) - half)
    assert seconds(outcomes[:half], effort) == pytest.approx(truth, rel=0.6, abs=25.0)


def test_new_processes_take_longer() -> None:
    default = replace(measured(search.baseline(SPACE), 20_000.0), wall_s=9.5)
    few = seconds([default])
    assert few > seconds([replace(default, wall_s=2.0)])


def test_looking_ahead_ends_in_time() -> None:
    ticks = itertools.count(0.0, LOOK_AHEAD_S / 2)
    left = progress(SPACE, run(20_000.0)[:1], NORMAL, 0, clock=lambda: next(ticks)).left
    assert left is not None
    assert left.at_least


def test_the_likely_outcome_is_that_of_the_nearest_candidate() -> None:
    one = measured(SPACE.candidate("jpeg-roi", 1, 2, loader="threads"), 20_000.0)
    four = likely_outcome(SPACE.candidate("jpeg-roi", 4, 2, loader="threads"), [one], SPACE).measurement
    assert four is not None
    assert four.samples_per_s == pytest.approx(4000.0)
    assert four.cores_used == pytest.approx(4.0)
    slower = likely_outcome(SPACE.candidate("torchvision", 1, 2), [one], SPACE).measurement
    assert slower is not None
    assert slower.samples_per_s < 0.7 * 1000
    most = likely_outcome(SPACE.candidate("jpeg-roi", 16, 2, loader="threads"), [one], replace(SPACE, usable_cores=2.0))
    assert most.measurement is not None
    assert most.measurement.samples_per_s == pytest.approx(2000.0)
