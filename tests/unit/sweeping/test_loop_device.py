"""What a sweep does about the device: questions, scatter, a ceiling in every block."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pipetune.records.sweep import AcceleratorSpec, Failure, Outcome
from pipetune.stats.noise import device_noise
from pipetune.sweeping.sweep_plan import Plan
from tests.fakes import outcome
from tests.photo_set import workload
from tests.unit.sweeping.bench import PLAN, REAL, Bench, run


def of_kind(kind: str) -> Plan:
    accelerator = AcceleratorSpec(kind=kind, name=kind)
    return replace(PLAN, conditions=replace(PLAN.conditions, workload=workload(accelerator=accelerator)))


@pytest.mark.parametrize(("kind", "of_device", "alone"), [
    ("cuda", True, 1250.0), ("cpu", False, 1250.0), ("emulated", True, None),
])  # fmt: skip
def test_a_question_knows_what_the_accelerator_does_by_itself(kind: str, of_device: bool, alone: float | None) -> None:
    bench = Bench()
    run(bench, of_kind(kind))
    questions = [question for question in bench.questions if question is not None]
    assert questions
    for question in questions:
        assert (question.device_noise is not None, question.alone_samples_per_s) == (of_device, alone)


def test_the_devices_own_scatter_is_that_of_its_steady_ceilings() -> None:
    bench = Bench()
    run(bench, of_kind("cuda"))
    assert {noise for _, noise in bench.noises} == {device_noise([], "cuda")}
    # Of an interrupted sweep: three ceilings that agree, and one that was not steady.
    known = [outcome(rate=rate, role="ceiling", steady=rate > 1000) for rate in (1250.0, 900.0, 1250.0, 1250.0)]
    bench = Bench()
    list(bench.sweep(of_kind("cuda"), lambda *_: None, known=known))
    steady = [found.measurement for found in known if found.measurement and found.measurement.steady]
    assert {noise for _, noise in bench.noises} == {device_noise(steady, "cuda")}
    assert device_noise(steady, "cuda") < device_noise([], "cuda")


def on_a_gpu() -> Plan:
    return replace(PLAN, conditions=replace(PLAN.conditions, workload=workload(accelerator=REAL)))


def warm_device(until_s: float, bench: Bench, **changes: Any) -> Callable[[int], Outcome]:
    """A ceiling that falls from 1,250 to 1,000 samples/s when so much time has gone by."""
    return lambda _: outcome(rate=1250.0 if bench.now <= until_s else 1000.0, **changes)


def test_each_block_has_a_ceiling_of_its_own_on_a_real_device() -> None:
    bench = Bench()
    bench.by_key = {"ceiling": warm_device(30.0, bench), "opencv-w2-p2-b64": lambda _: outcome(rate=980.0)}
    _, saved, _ = run(bench, on_a_gpu())
    blocks = {out.block for out in saved if out.block}
    assert blocks
    assert [out.block for out in saved if out.role == "ceiling"] == [0, *sorted(blocks)]
    for block in blocks:
        first = next(number for number, out in enumerate(saved) if out.block == block)
        assert saved[first].role == "ceiling"
    beside = {asked[3] for asked, out in zip(bench.asked, saved, strict=True) if out.block and out.role != "ceiling"}
    assert beside == {1000.0}


def test_an_emulated_device_is_always_the_same() -> None:
    _, saved, _ = run()
    assert [out.role for out in saved].count("ceiling") == 1


def test_a_ceiling_that_fails_in_a_block_leaves_the_one_before() -> None:
    bench = Bench()
    failing = Failure(kind="killed", phase="timed", message="gone")
    bench.by_key = {"ceiling": lambda _: outcome(rate=1250.0) if bench.now <= 10 else outcome(failure=failing)}
    yielded, saved, _ = run(bench, on_a_gpu())
    assert yielded == saved
    assert {ceiling for _, role, _, ceiling, _ in bench.asked if role != "ceiling"} == {1250.0}


def test_a_resumed_sweep_does_not_repeat_the_ceiling_of_a_block() -> None:
    rates: dict[str, Any] = {
        "opencv-w2-p2-b64": lambda _: outcome(rate=1200.0),
        "ceiling": lambda _: outcome(rate=1250.0),
    }
    _, saved, _ = run(Bench(**rates), on_a_gpu())
    begun = next(number for number, out in enumerate(saved) if out.block)
    bench = Bench(**rates)
    again = list(bench.sweep(on_a_gpu(), lambda *_: None, known=saved[: begun + 1]))
    assert [out.block for out in again if out.role == "ceiling"] == [
        out.block for out in saved[begun + 1 :] if out.role == "ceiling"
    ]
