"""A candidate that is faster than the ceiling proves the ceiling wrong: it is measured again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune import search
from pipetune.records.sweep import Outcome
from pipetune.sweeping.result import conclude
from pipetune.sweeping.sweep_plan import Plan
from tests.fakes import outcome
from tests.unit.sweeping.bench import PLAN, Bench, run
from tests.unit.sweeping.test_loop_device import of_kind

FASTEST = "opencv-w2-p2-b64"


def bench_with_ceilings(*rates: float, fastest: float = 1350.0) -> Bench:
    """Ceilings of these rates, one after the other, and one candidate that is faster than the first."""
    left = list(rates)

    def ceiling(_: int) -> Outcome:
        rate = left.pop(0) if len(left) > 1 else left[0]
        return outcome(rate=rate, goodput=None, goodput_ci95=None)

    bench = Bench(ceiling=ceiling)
    bench.by_key[FASTEST] = lambda _: outcome(rate=fastest, ceiling=bench.asked[-1][3] or 1.0)
    return bench


def ceilings_of(outcomes: list[Outcome]) -> list[float]:
    return [one.measurement.samples_per_s for one in outcomes if one.role == "ceiling" and one.measurement]


def test_it_is_measured_again_and_what_follows_is_stated_against_the_higher_one() -> None:
    bench = bench_with_ceilings(1000.0, 1500.0)
    yielded, saved, _ = run(bench)
    assert ceilings_of(yielded) == [1000.0, 1500.0]
    assert saved == yielded
    place = next(n for n, one in enumerate(yielded) if one.candidate.key == FASTEST)
    assert yielded[place + 1].role == "ceiling"
    assert {rate for _, role, _, rate, _ in bench.asked[place + 2 :] if role != "ceiling"} == {1500.0}


def test_a_lower_one_does_not_take_its_place_and_twice_is_enough() -> None:
    bench = bench_with_ceilings(1000.0, 900.0, 900.0, 900.0)
    yielded, _, _ = run(bench)
    assert ceilings_of(yielded) == [1000.0, 900.0, 900.0]
    assert {rate for _, role, _, rate, _ in bench.asked if role != "ceiling"} == {1000.0}


def test_not_where_the_budget_is_spent() -> None:
    plan = replace(PLAN, budget_s=60.0)
    bench = bench_with_ceilings(1000.0, 1500.0)
    bench.by_key["pillow-w0-p0-b64"] = lambda _: outcome(rate=1350.0)
    bench.wall_s = 25.0
    yielded, _, _ = run(bench, plan)
    assert ceilings_of(yielded) == [1000.0]


@pytest.mark.parametrize(("forked", "times"), [(True, 2), (False, 1)])
def test_a_script_is_not_started_anew_for_it(forked: bool, times: int) -> None:
    plan: Plan = replace(of_kind("cpu"), in_script=True, blocks=0)
    bench = bench_with_ceilings(1000.0, 1500.0)
    bench.can_fork = forked
    yielded, _, _ = run(bench, plan)
    assert len(ceilings_of(yielded)) == times


def test_nothing_of_the_result_is_above_all_that_the_accelerator_can_take() -> None:
    yielded, _, _ = run(bench_with_ceilings(1000.0, 1500.0))
    result = conclude(
        yielded,
        goal=PLAN.goal,
        space=PLAN.space,
        accelerator=PLAN.conditions.workload.accelerator,
        dataset={"name": "x"},
        workload={},
        host={},
        usable_cores=4,
        seconds=1.0,  # type: ignore[typeddict-item]
    )
    assert result.ceiling is not None
    assert result.ceiling.measurement is not None
    assert result.ceiling.measurement.samples_per_s == 1500.0
    assert all((one.measurement.goodput or 0) <= 1 for one in result.ranking if one.measurement)
    assert not any("accelerator itself became" in doubt for doubt in result.doubts)
    fastest = search.latest(result.outcomes)[FASTEST].measurement
    assert fastest is not None
    assert fastest.goodput == pytest.approx(0.9)
