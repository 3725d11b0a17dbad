from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pipetune.diagnosis import causes
from pipetune.records.evidence import Signal
from pipetune.records.observation import LOADER_WAIT, RUNNING, SLEEP, RankReading
from pipetune.sampler.stacks import activity as act
from tests.unit.diagnosis import scenes
from tests.unit.diagnosis.scenes import judged, stack, with_stacks
from tests.watch_fakes import rank_readings, workers


def test_without_an_accelerator_the_wait_for_the_loader_stands_in() -> None:
    readings = rank_readings([None] * 40, source=LOADER_WAIT, workers=workers(4))
    computing = rank_readings([None] * 40, source=LOADER_WAIT, workers=workers(4), main=scenes.ON_CORE)
    verdict = judged([*readings[:16], *with_stacks(computing[16:], act.MODEL)])

    assert verdict.cause == causes.CPU_DECODE
    assert verdict.util_frac is None
    assert verdict.lost_frac == pytest.approx(0.4)
    assert verdict.source == LOADER_WAIT
    assert verdict.missing_signals[0] == Signal.ACCELERATOR


def test_without_an_accelerator_and_without_stacks_a_busy_main_thread_is_undetermined() -> None:
    verdict = judged(rank_readings([None] * 40, source=LOADER_WAIT, main=scenes.ON_CORE))

    assert verdict.cause == causes.UNDETERMINED
    assert verdict.shares == ()


@pytest.mark.parametrize(
    ("waits", "cause"),
    [(0, causes.HEALTHY), (1, causes.UNDETERMINED), (2, causes.UNDETERMINED), (4, causes.CPU_DECODE)],
)
def test_a_wait_that_was_seen_once_or_twice_is_no_cause_yet(waits: int, cause: str) -> None:
    waiting = rank_readings([None] * waits, source=LOADER_WAIT, workers=workers(4))
    computing = rank_readings([None] * (16 - waits), source=LOADER_WAIT, workers=workers(4), main=scenes.ON_CORE)
    verdict = judged([*with_stacks(computing, act.MODEL), *waiting])

    assert verdict.cause == cause
    assert verdict.lost_frac == pytest.approx(waits / 16)
    if waits == 1:
        for part in ("6 %", "16 readings", "1 to 28 %"):
            assert part in verdict.sentence
        assert verdict.shares[0].cause == causes.CPU_DECODE  # what it would be is shown
        assert verdict.lost_ci95 == pytest.approx((0.011, 0.283), abs=0.001)


def test_without_an_accelerator_inline_loading_is_lost_time() -> None:
    inline = replace(scenes.ON_CORE, read_chars=20_000_000)
    readings = rank_readings([None] * 40, source=LOADER_WAIT, main=inline, workers=(), worker_kind=None)

    assert judged(readings).cause == causes.NO_WORKERS


def _does(activity: str, *, in_python: bool | None = None, every: int = 2, **main: Any) -> list[RankReading]:
    """A job whose main thread does this a third of its time, and computes with torch otherwise."""
    ran = rank_readings([None] * 48, source=LOADER_WAIT, workers=workers(2), main=replace(scenes.ON_CORE, **main))
    readings = with_stacks(ran, activity, act.MODEL, act.MODEL, every=every)
    return [
        replace(reading, stack=replace(reading.stack, in_python=in_python))
        if reading.stack is not None and reading.stack.activity == activity
        else reading
        for reading in readings
    ]


@pytest.mark.parametrize(
    ("activity", "cause"),
    [
        (act.PYTHON, causes.MAIN_PYTHON),
        (act.CHECKPOINT, causes.CHECKPOINT),
        (act.COMMUNICATION, causes.COMMUNICATION),
        (act.LOADER_INLINE, causes.NO_WORKERS),
    ],
)
def test_without_an_accelerator_what_is_certainly_no_step_is_lost(activity: str, cause: str) -> None:
    verdict = judged(_does(activity, in_python=True))

    assert verdict.cause == cause
    assert verdict.lost_frac == pytest.approx(1 / 3, abs=0.05)
    assert "of the main thread's time goes into other things than training" in verdict.sentence


def test_saving_is_lost_without_a_stack_too() -> None:
    saves = replace(scenes.ON_CORE, write_chars=50_000_000)
    computing = _does(act.MODEL, every=1)[:32]
    saving = rank_readings([None] * 16, source=LOADER_WAIT, workers=workers(2), main=saves)
    verdict = judged([*computing, *saving])

    assert verdict.cause == causes.CHECKPOINT
    assert verdict.lost_frac == pytest.approx(1 / 3)


def test_an_evaluation_is_lost_although_it_waits_for_a_device() -> None:
    readings = [
        replace(reading, stack=replace(reading.stack, unseen=act.CHECKPOINT))
        if reading.stack is not None and reading.stack.activity == act.DEVICE_WAIT
        else reading
        for reading in _does(act.DEVICE_WAIT)
    ]

    assert judged(readings).cause == causes.CHECKPOINT
    assert judged(_does(act.DEVICE_WAIT)).cause == causes.HEALTHY


def test_ones_own_python_is_never_called_healthy() -> None:
    readings = rank_readings([None] * 40, source=LOADER_WAIT, workers=(), worker_kind=None, main=scenes.ON_CORE)

    assert judged(with_stacks(readings, act.PYTHON, every=2)).cause == causes.MAIN_PYTHON


@pytest.mark.parametrize(("in_python", "wait"), [(False, RUNNING), (None, SLEEP)])
def test_native_code_and_sleep_in_ones_own_lines_may_be_a_step_and_are_not_judged(
    in_python: bool | None, wait: str
) -> None:
    main = replace(scenes.ON_CORE, wait=wait, state="R" if wait == RUNNING else "S")
    readings = rank_readings([None] * 40, source=LOADER_WAIT, workers=(), worker_kind=None, main=main)
    stacked = [replace(reading, stack=replace(stack(act.PYTHON), in_python=in_python)) for reading in readings]
    verdict = judged(stacked)

    assert verdict.cause == causes.UNDETERMINED
    assert "cannot be seen from outside" in verdict.sentence


def test_a_copy_alone_is_no_sign_of_health() -> None:
    readings = rank_readings([None] * 40, source=LOADER_WAIT, workers=workers(2), main=scenes.ON_CORE)

    assert judged(with_stacks(readings, act.COPY)).cause == causes.UNDETERMINED


def test_where_an_accelerator_is_read_stacks_mean_what_they_show() -> None:
    readings = scenes.scene(0.4, main=scenes.ON_CORE, workers=scenes.team(scenes.IDLE_WORKER))
    stacked = [replace(reading, stack=replace(stack(act.PYTHON), in_python=False)) for reading in readings]

    assert judged(stacked).cause == causes.MAIN_PYTHON
