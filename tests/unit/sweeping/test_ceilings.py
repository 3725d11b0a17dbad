from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pipetune.records.ceilings import BatchCeiling
from pipetune.records.sweep import Failure, Outcome
from pipetune.sweeping.ceilings import ceilings_by_batch
from tests.fakes import outcome
from tests.unit.sweeping.bench import PLAN, Bench, run

PLAN_OF_THREE = replace(PLAN, other_batches=(128, 64, 256, 128))


def ceiling(rate: float, batch: int = 64, **changes: Any) -> Outcome:
    made = outcome("pillow", 0, rate=rate, role="ceiling", goodput=None, **changes)
    return replace(made, candidate=replace(made.candidate, batch_size=batch), other_batch=batch != 64)


def rows(*outcomes: Outcome) -> dict[int, BatchCeiling]:
    return {row.batch_size: row for row in ceilings_by_batch(outcomes)}


def test_they_are_measured_once_each_beside_the_ceiling() -> None:
    _, saved, events = run(plan=PLAN_OF_THREE)
    ceilings = [out for out in saved if out.role == "ceiling"]
    assert [(out.candidate.batch_size, out.is_ceiling) for out in ceilings] == [(64, True), (128, False), (256, False)]
    assert saved[:3] == ceilings
    assert [event.other_batch for event in events[:4]] == [False, True, True, False]
    assert not any(out.other_batch for out in saved[3:])


def test_candidates_are_stated_against_the_ceiling_of_their_own_batch_size() -> None:
    rates = iter([1000.0, 3000.0, 5000.0])
    bench = Bench(ceiling=lambda _: outcome(rate=next(rates)))
    run(bench, PLAN_OF_THREE)
    assert {against for _, role, _, against, _ in bench.asked if role != "ceiling"} == {1000.0}


def test_one_that_does_not_fit_is_kept_and_the_sweep_goes_on() -> None:
    full = Failure(kind="out_of_gpu_memory", phase="open", message="CUDA out of memory")
    made = iter([outcome(rate=1000.0), outcome(failure=full), outcome(rate=1200.0)])
    _, saved, _ = run(Bench(ceiling=lambda _: next(made)), PLAN_OF_THREE)
    assert rows(*saved)[128].failure == "CUDA out of memory"
    assert rows(*saved)[256].samples_per_s == 1200.0
    assert any(out.role == "candidate" for out in saved)


def test_a_resumed_sweep_measures_only_those_that_are_missing() -> None:
    _, saved, _ = run(plan=replace(PLAN, other_batches=(128,)))
    bench = Bench()
    list(bench.sweep(PLAN_OF_THREE, lambda *_: None, known=saved))
    assert [key.rpartition("-b")[2] for key, role, *_ in bench.asked if role == "ceiling"] == ["256"]


def test_gains_are_stated_against_the_ceiling_that_was_measured_beside_them() -> None:
    later = ceiling(500.0)  # the device has become warm
    found = rows(ceiling(900.0, steady=False), ceiling(1000.0), ceiling(1300.0, 128), ceiling(1010.0, 256), later)
    assert sorted(found) == [64, 128, 256]
    assert found[64].gain is None
    assert found[128].gain == pytest.approx(1.3)
    assert found[128].is_faster
    assert not found[256].is_faster, "within the intervals"


def test_without_other_batch_sizes_there_are_none() -> None:
    assert rows(ceiling(1000.0), ceiling(990.0)) == {}
