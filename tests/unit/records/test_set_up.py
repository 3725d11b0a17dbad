from __future__ import annotations

import dataclasses

from pipetune.records.set_up import SetUp, slowest_stages


def test_what_was_not_measured_is_not_counted() -> None:
    assert SetUp().total_s is None
    assert SetUp(start_s=0.5, context_s=2.0).total_s == 2.5
    stages = dict.fromkeys((field.name for field in dataclasses.fields(SetUp)), 1.0)
    assert SetUp(**stages).total_s == len(stages)


def test_each_stage_is_that_of_the_slowest_rank() -> None:
    ranks = [SetUp(start_s=1.0, model_s=4.0), SetUp(start_s=2.0, model_s=3.0)]
    assert slowest_stages(ranks) == SetUp(start_s=2.0, model_s=4.0)
    assert slowest_stages([]) is None
