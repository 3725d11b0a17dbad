from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from pipetune.diagnosis.causes import HEALTHY_LOST
from pipetune.diagnosis.main_thread import UNKNOWN, independent_readings, loses_time, shares_of_activities
from pipetune.records.observation import (
    DISK,
    EMULATED,
    LOADER_WAIT,
    LOCK,
    NETWORK,
    NVML,
    OTHER,
    PIPE,
    RUNNING,
    SLEEP,
    RankReading,
    TaskReading,
)
from pipetune.sampler.stacks import activity as act
from tests.unit.diagnosis.scenes import ON_CORE, scene, with_stacks
from tests.watch_fakes import main_reading, rank_reading, task_reading, workers


def _of(**changes: Any) -> str:
    (shares,) = shares_of_activities([rank_reading(**changes)])
    assert len(shares) == 1
    return next(iter(shares))


def test_a_stack_says_what_its_reading_was() -> None:
    (reading,) = with_stacks(scene(0.5, 1), act.COPY)

    assert shares_of_activities([reading]) == [{act.COPY: 1.0}]


def test_stacks_show_what_a_wait_means() -> None:
    readings = with_stacks(scene(0.5, 12), act.LOADER, act.COPY, every=2)

    shares = shares_of_activities(readings)

    assert shares[0] == {act.LOADER: 1.0}
    assert shares[2] == {act.COPY: 1.0}
    assert shares[1] == shares[11] == {act.LOADER: 0.5, act.COPY: 0.5}


def _active(readings: list[RankReading], active: bool | None) -> list[RankReading]:
    return [
        replace(reading, stack=replace(reading.stack, active=active)) if reading.stack else reading
        for reading in readings
    ]


@pytest.mark.parametrize(("main", "active"), [(main_reading(), True), (ON_CORE, False)])
def test_a_stack_of_another_moment_says_nothing(main: TaskReading, active: bool) -> None:
    # It is taken some 20 ms after the reading; the thread has gone to sleep, or has been woken, meanwhile.
    readings = scene(0.5, 12, main=main)

    torn = _active(with_stacks(readings, act.COPY, every=2), active)

    assert shares_of_activities(torn) == shares_of_activities(readings)
    assert independent_readings(torn, shares_of_activities(torn), [1.0] * 12) == pytest.approx(12)


@pytest.mark.parametrize(
    ("main", "active"), [(main_reading(), False), (ON_CORE, True), (main_reading(), None), (ON_CORE, None)]
)
def test_a_stack_in_the_same_state_or_an_unknown_one_is_used(main: TaskReading, active: bool | None) -> None:
    taught = _active(with_stacks(scene(0.5, 12, main=main), act.COPY, every=2), active)

    assert shares_of_activities(taught) == [{act.COPY: 1.0}] * 12


def test_what_one_wait_means_says_nothing_of_another() -> None:
    readings = [*with_stacks(scene(0.5, 6), act.COPY), *scene(0.5, 1, main=ON_CORE)]

    assert shares_of_activities(readings)[-1] == {act.PYTHON: 1.0}


def test_one_stack_is_no_rule() -> None:
    readings = with_stacks(scene(0.5, 6), act.COPY, every=10)

    assert shares_of_activities(readings)[1:] == [{act.LOADER: 1.0}] * 5


def test_a_main_thread_that_writes_is_not_what_stacks_of_others_say() -> None:
    computing = with_stacks(scene(0.5, 20, main=ON_CORE), act.PYTHON, every=2)
    saving = scene(0.5, 5, main=main_reading(state="R", wait=RUNNING, cpu_frac=1.0, write_chars=40_000_000))

    shares = shares_of_activities([*computing, *saving])

    assert shares[-5:] == [{act.CHECKPOINT: 1.0}] * 5
    assert shares[1] == {act.PYTHON: 1.0}


@pytest.mark.parametrize(
    ("changes", "activity"),
    [
        ({"main": main_reading(wait=PIPE), "worker_kind": "process"}, act.LOADER),
        ({"main": main_reading(wait=PIPE), "worker_kind": "thread"}, UNKNOWN),
        ({"main": main_reading(wait=PIPE), "worker_kind": None, "workers": ()}, UNKNOWN),
        ({"main": main_reading(wait=LOCK), "worker_kind": "thread"}, act.LOADER),
        ({"main": main_reading(wait=LOCK), "pin": task_reading(name="pt_data_pin")}, act.LOADER),
        ({"main": main_reading(wait=LOCK)}, UNKNOWN),
        ({"main": main_reading(wait=SLEEP), "source": EMULATED}, act.DEVICE_WAIT),
        ({"main": main_reading(wait=SLEEP), "source": NVML}, UNKNOWN),
        ({"main": main_reading(wait=OTHER)}, UNKNOWN),
        ({"main": main_reading(wait=NETWORK)}, UNKNOWN),
        ({"main": main_reading(wait=DISK)}, act.CHECKPOINT),  # the fake writes 2 MB/s
        ({"main": main_reading(wait=DISK, write_chars=0)}, UNKNOWN),
        ({"main": main_reading(wait=DISK, write_chars=0), "workers": (), "worker_kind": None}, act.LOADER_INLINE),
        ({"main": main_reading(wait=RUNNING, write_chars=0)}, act.PYTHON),
        ({"main": main_reading(wait=RUNNING, write_chars=None)}, act.PYTHON),
        ({"main": main_reading(wait=RUNNING, write_chars=0), "source": LOADER_WAIT}, UNKNOWN),
        ({"main": main_reading(wait=RUNNING, write_chars=10**7)}, act.CHECKPOINT),
        ({"main": main_reading(wait=RUNNING, write_chars=0), "workers": (), "worker_kind": None}, act.LOADER_INLINE),
        (
            {"main": main_reading(wait=RUNNING, write_chars=0, read_chars=None), "workers": (), "worker_kind": None},
            act.PYTHON,
        ),
        ({"main": main_reading(wait=OTHER, cpu_frac=0.8, write_chars=0)}, act.PYTHON),
    ],
)
def test_without_stacks_a_wait_means_what_it_usually_means(changes: dict[str, Any], activity: str) -> None:
    assert _of(**changes) == activity


@pytest.mark.parametrize("interval_s", [0.1, 2.0])
def test_rates_are_those_of_the_interval(interval_s: float) -> None:
    # 1.5 MB/s, however long the interval was.
    written = round(1.5e6 * interval_s)

    assert _of(interval_s=interval_s, main=main_reading(wait=RUNNING, write_chars=written)) == act.CHECKPOINT
    assert _of(interval_s=interval_s, main=main_reading(wait=RUNNING, write_chars=written // 2)) == act.PYTHON


def test_readings_of_equal_weight_all_count() -> None:
    readings = scene(0.5, 20)

    assert independent_readings(readings, shares_of_activities(readings), [0.3] * 20) == pytest.approx(20)


def test_a_reading_of_no_weight_does_not_count() -> None:
    readings = scene(0.5, 20)

    assert independent_readings(readings, shares_of_activities(readings), [1.0] * 5 + [0.0] * 15) == pytest.approx(5)
    assert independent_readings(readings, shares_of_activities(readings), [0.0] * 20) == 0


def test_readings_interpreted_by_stacks_count_as_these() -> None:
    readings = with_stacks(scene(0.5, 60), act.LOADER, act.COPY, every=10)

    assert independent_readings(readings, shares_of_activities(readings), [1.0] * 60) == pytest.approx(6)


def test_waits_for_the_accelerator_do_not_count() -> None:
    readings = with_stacks(scene(0.5, 60, main=ON_CORE), act.DEVICE_WAIT, act.DEVICE_WAIT, act.COPY)

    assert independent_readings(readings, shares_of_activities(readings), [1.0] * 60) == pytest.approx(20)


def test_each_reading_is_whole() -> None:
    readings = [
        *with_stacks(scene(0.5, 30), act.LOADER, act.COPY, act.PYTHON, every=4),
        *with_stacks(scene(0.5, 30, main=ON_CORE, workers=workers(2)), act.MODEL, act.DEVICE_WAIT, every=3),
    ]

    shares = shares_of_activities(readings)

    assert len(shares) == 60
    assert all(sum(share.values()) == pytest.approx(1.0) for share in shares)
    assert Counter(name for share in shares for name in share).keys() == {
        act.LOADER, act.COPY, act.PYTHON, act.MODEL, act.DEVICE_WAIT
    }  # fmt: skip


@pytest.mark.parametrize(
    ("reading", "expected"),
    [
        (rank_reading(busy_frac=1 - 1.1 * HEALTHY_LOST), True),
        (rank_reading(busy_frac=1 - 0.9 * HEALTHY_LOST), False),
        (rank_reading(busy_frac=0.0), True),
        (rank_reading(busy_frac=None), True),
        (rank_reading(busy_frac=None, source=LOADER_WAIT), True),
        (rank_reading(busy_frac=0.1, idle_now=False, source=EMULATED), False),
        (rank_reading(busy_frac=0.99, idle_now=True, source=EMULATED), True),
    ],
)
def test_time_is_lost_below_the_healthy_share_or_where_nothing_is_known(reading: RankReading, expected: bool) -> None:
    assert loses_time(reading) is expected
