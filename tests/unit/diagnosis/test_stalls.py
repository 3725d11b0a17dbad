from __future__ import annotations

import random
from dataclasses import replace

import pytest

from pipetune.diagnosis import causes
from pipetune.diagnosis.stalls import BEGINS_BELOW, ENDS_ABOVE, StallTracker, busy_of
from pipetune.records.observation import LOADER_WAIT, RankReading
from pipetune.records.watch import Stall
from pipetune.sampler.stacks import activity as act
from tests.unit.diagnosis.scenes import ASLEEP_SOMEHOW, ON_CORE, stack
from tests.watch_fakes import BEGAN_NS, PID, main_reading, rank_reading, rank_readings, workers

HALF_S = 5 * 10**8
#: Clearly stalled, between the two marks, and clearly at work.
STALLED, BETWEEN, BUSY = BEGINS_BELOW / 2, (BEGINS_BELOW + ENDS_ABOVE) / 2, (ENDS_ABOVE + 1) / 2


def _stalls(readings: list[RankReading], usual: str | None = None) -> tuple[list[Stall], StallTracker]:
    tracker = StallTracker()
    found = [stall for reading in readings if (stall := tracker.add(reading, {}, usual)) is not None]
    return found, tracker


def test_a_stall_is_returned_when_it_has_ended() -> None:
    readings = rank_readings([BUSY, STALLED, 0.0, BUSY, BUSY])

    (stall,), tracker = _stalls(readings)

    assert (stall.t_start_ns, stall.t_end_ns) == (BEGAN_NS + HALF_S, BEGAN_NS + 3 * HALF_S)
    assert stall.lost_s == pytest.approx((1 - STALLED) / 2 + 0.5)
    assert stall.cause == causes.CPU_DECODE
    assert (stall.pid, stall.rank) == (PID, None)
    assert tracker.began_ns is None


def test_a_stall_that_goes_on_is_known_by_its_beginning() -> None:
    found, tracker = _stalls(rank_readings([BUSY, STALLED]))

    assert found == []
    assert tracker.began_ns == BEGAN_NS + HALF_S


def test_between_the_two_marks_nothing_begins_and_nothing_ends() -> None:
    assert _stalls(rank_readings([BETWEEN] * 9))[0] == []
    (stall,), _ = _stalls(rank_readings([STALLED, BETWEEN, STALLED, BETWEEN, BETWEEN, BUSY]))
    assert stall.t_end_ns - stall.t_start_ns == 5 * HALF_S


def test_a_loss_that_wavers_around_one_mark_is_one_stall() -> None:
    rng = random.Random(1)
    readings = rank_readings([STALLED, *(rng.uniform(STALLED, ENDS_ABOVE) for _ in range(50)), BUSY])

    assert len(_stalls(readings)[0]) == 1


def test_at_the_marks_themselves_nothing_happens() -> None:
    assert _stalls(rank_readings([BEGINS_BELOW, BUSY]))[0] == []
    assert _stalls(rank_readings([0.0, ENDS_ABOVE]))[1].began_ns is not None


def test_each_stall_is_returned_once() -> None:
    found, _ = _stalls(rank_readings([STALLED, BUSY, BUSY, STALLED, STALLED, BUSY]))

    assert [stall.lost_s for stall in found] == pytest.approx([(1 - STALLED) / 2, 1 - STALLED])


def test_the_end_of_the_job_ends_a_stall() -> None:
    _, tracker = _stalls(rank_readings([BUSY, STALLED]))

    stall = tracker.end(BEGAN_NS + 4 * HALF_S, {}, None)

    assert stall is not None
    assert stall.t_end_ns == BEGAN_NS + 4 * HALF_S
    assert tracker.end(BEGAN_NS + 5 * HALF_S, {}, None) is None
    assert tracker.began_ns is None


def test_a_stall_never_ends_before_it_begins() -> None:
    _, tracker = _stalls(rank_readings([STALLED]))

    stall = tracker.end(0, {}, None)

    assert stall is not None
    assert stall.t_end_ns == stall.t_start_ns


def test_a_stall_without_a_cause_of_its_own_has_the_usual_one() -> None:
    unclear = [rank_reading(busy_frac=0.0, main=ASLEEP_SOMEHOW[0].main, workers=(), t_ns=BEGAN_NS + HALF_S)]
    busy = rank_readings([BUSY], t_ns=BEGAN_NS + 2 * HALF_S)

    assert _stalls([*unclear, *busy], causes.NETWORK)[0][0].cause == causes.NETWORK
    for usual in (None, causes.HEALTHY, causes.NOT_STARTED, causes.UNDETERMINED):
        assert _stalls([*unclear, *busy], usual)[0][0].cause == causes.UNDETERMINED


def test_a_clear_stall_keeps_its_own_cause() -> None:
    saving = main_reading(state="R", wait="running", write_chars=90_000_000)
    readings = [*rank_readings([0.0] * 6, main=saving), *rank_readings([BUSY], t_ns=BEGAN_NS + 8 * HALF_S)]

    assert _stalls(readings, causes.CPU_DECODE)[0][0].cause == causes.CHECKPOINT


@pytest.mark.parametrize(("learnt", "cause"), [(act.CHECKPOINT, causes.CHECKPOINT), (act.MODEL, causes.SMALL_BATCH)])
def test_a_stall_without_a_stack_is_read_by_those_from_before(learnt: str, cause: str) -> None:
    before = rank_readings([0.0] * 3, main=ON_CORE, stack=stack(learnt))
    readings = rank_readings([0.0, 0.0, 1.0], main=ON_CORE)
    readings = [replace(reading, t_ns=reading.t_ns + 10**10) for reading in readings]
    tracker, alone = StallTracker(), StallTracker()
    found = [tracker.add(reading, {}, None, before) for reading in readings]

    assert found[-1] is not None
    assert found[-1].cause == cause
    assert [alone.add(reading, {}, None) for reading in readings][-1].cause == causes.MAIN_PYTHON  # type: ignore[union-attr]


def test_stacks_from_after_a_stall_are_not_used_for_it() -> None:
    readings = rank_readings([0.0, 0.0, 1.0], main=ON_CORE)
    after = [replace(reading, t_ns=reading.t_ns + 10**10, stack=stack(act.CHECKPOINT)) for reading in readings]
    tracker = StallTracker()

    assert [tracker.add(reading, {}, None, after) for reading in readings][-1].cause == causes.MAIN_PYTHON  # type: ignore[union-attr]


def test_a_long_stall_keeps_its_beginning_and_all_that_was_lost() -> None:
    (stall,), _ = _stalls(rank_readings([0.0] * 1000 + [1.0]))

    assert stall.lost_s == pytest.approx(500)
    assert stall.t_end_ns - stall.t_start_ns == 1000 * HALF_S


@pytest.mark.parametrize(
    ("activity", "busy"),
    [
        (act.LOADER, 0.0),
        (act.LOADER_INLINE, 0.0),
        (act.LOADER_START, 0.0),
        (act.PYTHON, 1.0),
        (act.MODEL, 1.0),
        (act.CHECKPOINT, 0.0),
    ],
)
def test_without_an_accelerator_waits_for_data_and_checkpoints_are_the_stall(activity: str, busy: float) -> None:
    reading = rank_reading(source=LOADER_WAIT, busy_frac=None, stack=stack(activity))

    assert busy_of(reading) == busy


def test_without_an_accelerator_and_stacks_the_wait_decides() -> None:
    assert busy_of(rank_reading(source=LOADER_WAIT, busy_frac=None)) == 0.0
    assert busy_of(rank_reading(source=LOADER_WAIT, busy_frac=None, main=ON_CORE, workers=workers(2))) == 1.0


def test_a_gpu_that_was_not_read_once_is_judged_by_the_main_thread() -> None:
    assert busy_of(rank_reading(busy_frac=None)) == 0.0
    assert busy_of(rank_reading(busy_frac=0.7)) == 0.7


def test_lost_time_of_all_stalls_is_within_the_time() -> None:
    rng = random.Random(2)
    values = [rng.random() for _ in range(400)]
    found, tracker = _stalls(rank_readings(values))
    last = tracker.end(BEGAN_NS + 400 * HALF_S, {}, None)
    stalls = [*found, *([last] if last else [])]

    assert stalls
    for stall in stalls:
        assert 0 < stall.lost_s <= (stall.t_end_ns - stall.t_start_ns) / 1e9 + 1e-9
    ends = [0] + [stall.t_end_ns for stall in stalls]
    assert all(stall.t_start_ns >= end for stall, end in zip(stalls, ends, strict=False))
