"""What of a few measurements is recommended (see also test_choice.py: ties, doubts, noise)."""

from __future__ import annotations

from dataclasses import replace

from pipetune import search
from pipetune.candidates.space import Space
from pipetune.records.sweep import Failure, Goal
from tests.fakes import outcome
from tests.unit.search.chosen import recommend

GOAL = Goal(target=0.9, metric="goodput")
SPACE = Space(
    backends=("pillow", "opencv", "dali"), workers=(0, 1, 2, 4, 8), prefetch=(2, 4), batch_size=64, pin_memory=False
)
FAILED = Failure(kind="crashed", phase="open", message="x")


def test_cheapest_means_cores_then_memory() -> None:
    a = outcome("opencv", 4, 2, rate=1250, cores_used=1.52, pss_bytes=900)
    b = outcome("opencv", 4, 4, rate=1250, cores_used=1.48, pss_bytes=2000)
    c = outcome("dali", 2, 2, rate=1250, cores_used=1.80, pss_bytes=100)
    best = recommend([a, b, c], GOAL, SPACE)
    assert best is a


def test_equal_cost_is_decided_by_workers_and_prefetch() -> None:
    two = outcome("opencv", 2, 2, rate=1250, cores_used=1.38, pss_bytes=736)
    four = outcome("opencv", 2, 4, rate=1250, cores_used=1.31, pss_bytes=733)
    more = outcome("opencv", 4, 2, rate=1250, cores_used=1.30, pss_bytes=735)
    for order in ([two, four, more], [more, four, two]):
        assert recommend(order, GOAL, SPACE) is two


def test_the_default_is_recommended_only_if_asked_for() -> None:
    default = outcome("pillow", 0, rate=1250, cores_used=0.5, role="baseline")
    tuned = outcome("opencv", 2, rate=1250, cores_used=1.5)
    without = Space(backends=("opencv",), workers=(1, 2), prefetch=(2,), batch_size=64, pin_memory=False)
    assert recommend([default, tuned], GOAL, without) is tuned
    assert recommend([default], GOAL, without) is default
    assert recommend([default, tuned], GOAL, SPACE) is default


def test_the_default_may_be_recommended_where_the_other_candidates_pin_memory() -> None:
    default = outcome("pillow", 0, rate=1250, cores_used=0.5, role="baseline")
    pinned = outcome("opencv", 2, rate=1250, cores_used=1.5, pin_memory=True)
    assert recommend([default, pinned], GOAL, replace(SPACE, pin_memory=True)) is default


def test_a_repeated_measurement_replaces_the_first() -> None:
    drifted = outcome("opencv", 2, rate=1240, cores_used=0.1)
    again = outcome("opencv", 2, rate=600, attempt=2)
    other = outcome("dali", 2, rate=1200)
    assert recommend([drifted, again, other], GOAL, SPACE) is other


def test_the_ceiling_is_no_candidate() -> None:
    assert recommend([outcome("pillow", 0, rate=9999, role="ceiling")], GOAL, SPACE) is None


def test_the_other_metric_is_utilisation() -> None:
    goal = Goal(target=0.9, metric="nvml")
    assert search.meets(outcome(gpu_util_pct=95.0, goodput=0.5).measurement, goal)  # type: ignore[arg-type]
    assert not search.meets(outcome(gpu_util_pct=None).measurement, goal)  # type: ignore[arg-type]


def test_a_failed_repeat_replaces_nothing() -> None:
    first = outcome("opencv", 2, rate=1240)
    assert recommend([first, outcome("opencv", 2, failure=FAILED, attempt=2)], GOAL, SPACE) is first
