from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune.diagnosis import causes
from pipetune.records.evidence import Signal
from pipetune.records.observation import LOADER_WAIT
from pipetune.sampler.stacks import activity as act
from tests.unit.diagnosis import scenes
from tests.unit.diagnosis.scenes import judged, with_stacks
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
