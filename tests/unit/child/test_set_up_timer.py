from __future__ import annotations

from pipetune.child.set_up_timer import SetUpTimer
from pipetune.records.set_up import SetUp


def test_each_stage_lasts_from_the_end_of_the_one_before() -> None:
    now_ns = 5_000_000_000
    timer = SetUpTimer(3_000_000_000, lambda: now_ns)
    now_ns += 1_000_000_000
    timer.end_stage("import_s")
    now_ns += 500_000_000
    timer.end_stage()
    now_ns += 250_000_000
    timer.end_stage("import_s")
    now_ns += 4_000_000_000
    timer.end_stage("context_s")
    assert timer.set_up == SetUp(start_s=2.0, import_s=1.25, context_s=4.0)


def test_without_the_time_of_the_request_the_start_is_not_known() -> None:
    assert SetUpTimer(None).set_up == SetUp()
