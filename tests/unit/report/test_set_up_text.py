from __future__ import annotations

from dataclasses import replace

from pipetune.records.set_up import SetUp
from pipetune.records.sweep import Outcome
from pipetune.report.set_up_text import describe_set_up, mention_set_up
from tests.unit.sweeping.test_result import CEILING, DEFAULT, TUNED, sweep_result


def set_up(outcome: Outcome, **stages: float) -> Outcome:
    assert outcome.measurement is not None
    return replace(outcome, measurement=replace(outcome.measurement, set_up=SetUp(**stages)))


def test_set_up_is_summed_over_all_measurements_stage_by_stage() -> None:
    result = sweep_result(
        set_up(CEILING, start_s=0.5, context_s=1.0), set_up(DEFAULT, start_s=1.0, model_s=0.25), TUNED, seconds=12.0
    )
    assert describe_set_up(result) == (
        "2.8 s of 12.0 s in 2 measurements (process start 1.5 s, device context 1.0 s, model 250.0 ms)"
    )
    assert (mention_set_up(result) or "").startswith("Set-up took 2.8 s of 12.0 s")


def test_a_small_set_up_is_in_the_page_and_not_at_the_end_of_a_sweep() -> None:
    result = sweep_result(CEILING, set_up(DEFAULT, start_s=1.0), TUNED, seconds=12.0)
    assert describe_set_up(result) == "1.0 s of 12.0 s in 1 measurement (process start 1.0 s)"
    assert mention_set_up(result) is None
    assert describe_set_up(sweep_result(CEILING, DEFAULT, TUNED)) is None
