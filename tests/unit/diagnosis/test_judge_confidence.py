from __future__ import annotations

import pytest

from pipetune.diagnosis import causes
from pipetune.records.evidence import Signal
from pipetune.records.observation import PIPE
from pipetune.sampler.stacks import activity as act
from tests.unit.diagnosis import scenes
from tests.unit.diagnosis.scenes import judged, scene, team, with_stacks
from tests.watch_fakes import main_reading, workers


def test_two_causes_of_the_same_size_give_no_high_confidence() -> None:
    verdict = judged(with_stacks(scenes.PYTHON, act.COPY, act.PYTHON))

    assert verdict.confidence in ("low", "medium")
    assert {share.cause for share in verdict.shares} == {causes.H2D_COPY, causes.MAIN_PYTHON}


def test_a_cause_that_stands_alone_is_sure() -> None:
    assert judged(scenes.DECODES).confidence == "high"


def test_python_that_no_stack_has_shown_is_not_believed_much() -> None:
    assert judged(scenes.PYTHON).confidence == "low"
    assert judged(with_stacks(scenes.PYTHON, act.PYTHON, every=4)).confidence == "high"


def test_a_disk_without_pressure_is_not_believed_much() -> None:
    assert judged(scenes.READS_DISK, psi_io_some_pct=0.5).confidence == "low"
    assert judged(scenes.READS_DISK, psi_io_some_pct=60.0).confidence == "high"
    assert judged(scenes.READS_DISK, psi_io_some_pct=None).confidence == "high"


def test_many_small_causes_are_no_headline() -> None:
    verdict = judged(with_stacks(scenes.PYTHON, act.COPY, act.PYTHON, act.MODEL, act.COMMUNICATION))

    assert verdict.cause == causes.UNDETERMINED
    assert len(verdict.shares) == 4


def test_workers_are_summed_up_over_the_window() -> None:
    asleep = team(scenes.IDLE_WORKER, 2)
    readings = [*scene(0.4, 20, workers=workers(2)), *scene(0.4, 20, workers=asleep)]

    summary = judged(readings).workers

    assert [worker.pid for worker in summary] == [4001, 4002]
    assert summary[0].cpu_frac == pytest.approx((0.95 + 0.02) / 2)
    assert summary[0].waits[PIPE] == pytest.approx(0.98 / 2)
    assert summary[0].state == "S"
    assert summary[0].run_delay_frac == pytest.approx(0.01)


def test_a_worker_that_ended_is_not_in_the_summary() -> None:
    readings = [*scene(0.4, 20, workers=workers(2)), *scene(0.4, 20, workers=workers(1))]

    assert [worker.pid for worker in judged(readings).workers] == [4001]


def test_a_missing_run_delay_is_not_zero() -> None:
    readings = scene(workers=workers(2, run_delay_frac=None), main=main_reading(run_delay_frac=None))

    verdict = judged(readings)

    assert verdict.workers[0].run_delay_frac is None
    assert Signal.RUN_DELAY in verdict.missing_signals
