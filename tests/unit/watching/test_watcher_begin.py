"""When a watcher takes a job to have begun its training."""

from __future__ import annotations

from typing import Any

import pytest

from pipetune.diagnosis import causes
from pipetune.records.observation import LOADER_WAIT, StackSample
from pipetune.sampler.stacks import activity as act
from tests.unit.diagnosis.scenes import ON_CORE
from tests.unit.watching.watch_scene import (
    PID,
    TRAINING,
    WAITING,
    Scene,
    make_scene,
)
from tests.watch_fakes import workers

UNSEEN: dict[str, Any] = {"busy_frac": None, "source": LOADER_WAIT, "workers": (), "worker_kind": None}


def test_no_window_closes_before_a_rank_begins(scene: Scene) -> None:
    assert scene.windows(1000, busy_frac=None, source=LOADER_WAIT, workers=(), worker_kind=None) == []


def test_after_its_patience_a_window_says_that_no_rank_has_begun() -> None:
    scene = make_scene(patience_s=30.0)

    assert scene.windows(30, busy_frac=0.0, main=ON_CORE, workers=(), worker_kind=None) == []
    (window,) = scene.windows(11)

    assert [verdict.cause for verdict in window.verdicts] == [causes.NOT_STARTED]


@pytest.mark.parametrize(("activity", "cause"), [(None, causes.UNDETERMINED), (act.IMPORT, causes.NOT_STARTED)])
def test_a_job_with_nothing_in_sight_is_judged_by_what_was_seen_unless_it_imports(
    activity: str | None, cause: str
) -> None:
    scene = make_scene(patience_s=30.0, setup_s=10.0)
    scene.ticks(0.5, **UNSEEN)
    if activity is not None:
        scene.stacks[PID].says = StackSample(pid=PID, activity=activity, where="x (y.py:1)")

    assert scene.windows(30, **UNSEEN) == []
    (window,) = scene.windows(11)

    (verdict,) = window.verdicts
    assert verdict.cause == cause
    if activity is None:
        assert "main thread: unknown 100 %" in verdict.evidence[0]
        assert "no loader workers" in verdict.evidence


def test_a_watch_that_ends_early_has_a_window_of_all_that_it_has_read() -> None:
    scene = make_scene(patience_s=180.0, setup_s=10.0)
    scene.ticks(8, **UNSEEN)

    window = scene.watcher.close_only_window()

    assert window is not None
    assert window.seconds == pytest.approx(7.5)
    assert [(verdict.cause, verdict.looks) for verdict in window.verdicts] == [(causes.UNDETERMINED, 15)]


def test_a_job_that_was_read_once_has_an_empty_window() -> None:
    scene = make_scene(patience_s=180.0)
    scene.ticks(0.5, **UNSEEN)

    assert scene.watcher.close_only_window() is None
    window = scene.watcher.empty_window()

    assert window.seconds == 0
    assert [verdict.cause for verdict in window.verdicts] == [causes.NOT_STARTED]


@pytest.mark.parametrize(
    ("setup_s", "age_s", "watched_s", "activity", "begun"),
    [
        (10.0, 20.0, 8.0, act.PYTHON, False),  # it may be setting up
        (10.0, 20.0, 12.0, act.PYTHON, True),
        (120.0, 20.0, 12.0, act.PYTHON, False),
        (120.0, 500.0, 1.0, act.PYTHON, True),
        (120.0, 20.0, 121.0, act.CHECKPOINT, True),
        (10.0, 20.0, 30.0, act.IMPORT, False),
        (10.0, 500.0, 30.0, act.IMPORT, False),
        (10.0, 20.0, 1.0, act.LOADER, True),  # of a pool of its own
        (10.0, 20.0, 30.0, None, False),
        (10.0, 500.0, 1.0, None, True),
        (120.0, 500.0, 1.0, None, False),
    ],
)
def test_with_nothing_in_sight_a_job_is_what_it_does_once_it_cannot_be_setting_up(
    setup_s: float, age_s: float, watched_s: float, activity: str | None, begun: bool
) -> None:
    scene = make_scene(setup_s=setup_s)
    scene.ticks(watched_s, **UNSEEN)
    if activity is not None:
        scene.stacks[PID].says = StackSample(pid=PID, activity=activity, where="x (y.py:1)")
    scene.ticks(0.5, **UNSEEN, age_s=age_s)

    assert scene.watcher.begun is begun


def test_readings_before_the_accelerator_was_busy_do_not_count(scene: Scene) -> None:
    importing = scene.windows(60, busy_frac=0.0, main=ON_CORE, workers=(), worker_kind=None)
    begun_before = scene.watcher.begun
    (window,) = scene.windows(10, **TRAINING)

    assert importing == []
    assert not begun_before
    assert scene.watcher.begun
    assert window.seconds == pytest.approx(10.0)
    assert window.verdicts[0].cause == causes.HEALTHY
    assert window.verdicts[0].lost_frac == 0
    assert scene.watcher.history.stalls == []


def test_a_job_that_is_idle_when_it_is_joined_is_judged(scene: Scene) -> None:
    (window,) = scene.windows(11, **WAITING | {"youngest_worker_s": 500.0})

    assert window.verdicts[0].cause == causes.CPU_DECODE


def test_a_job_that_is_idle_for_two_minutes_is_not_setting_up_any_more(scene: Scene) -> None:
    scene.ticks(150, busy_frac=0.0, main=ON_CORE, workers=(), worker_kind=None)

    assert scene.watcher.begun


def test_workers_that_are_started_anew_are_reported(scene: Scene) -> None:
    scene.ticks(6, **TRAINING)
    scene.job.ranks[PID, 1].restarts = 1
    (window,) = scene.windows(6, **TRAINING)

    assert window.notes == (f"loader workers of process {PID} were started anew",)


def test_a_job_that_never_begins_is_not_judged(scene: Scene) -> None:
    assert scene.windows(60, busy_frac=0.0, main=ON_CORE, workers=(), worker_kind=None) == []

    (verdict,) = scene.watcher.verdicts(30)
    assert verdict.cause == causes.NOT_STARTED
    assert (verdict.lost_frac, verdict.shares, verdict.looks) == (None, (), 0)
    assert scene.watcher.close_window() is None
    assert scene.watcher.history.summary() == ()


def test_an_accelerator_that_hardly_moved_has_not_begun(scene: Scene) -> None:
    scene.ticks(5, busy_frac=0.01)

    assert not scene.watcher.begun


def test_a_rank_that_begins_later_does_not_hold_up_the_others(scene: Scene) -> None:
    scene.job.rank(PID + 100, 1, busy_frac=0.0, main=ON_CORE, workers=(), worker_kind=None)

    scene.ticks(0.5, rank=0, **TRAINING)
    (window,) = scene.windows(10, rank=0, **TRAINING)

    assert [verdict.cause for verdict in window.verdicts] == [causes.HEALTHY, causes.NOT_STARTED]
    assert [verdict.rank for verdict in window.verdicts] == [0, 1]


@pytest.mark.parametrize(
    ("reading", "begun"),
    [
        ({"workers": workers(2), "youngest_worker_s": 60.0}, True),
        ({"workers": workers(2), "youngest_worker_s": 0.5}, False),
        ({"workers": workers(2), "youngest_worker_s": None, "worker_kind": "thread"}, True),
        ({"workers": (), "worker_kind": None}, False),
    ],
)
def test_without_an_accelerator_workers_that_had_time_to_deliver_are_the_beginning(
    scene: Scene, reading: dict[str, Any], begun: bool
) -> None:
    scene.ticks(2, source=LOADER_WAIT, busy_frac=None, **reading)

    assert scene.watcher.begun is begun


@pytest.mark.parametrize(
    ("activity", "begun"), [(act.LOADER_INLINE, True), (act.MODEL, True), (act.DEVICE_WAIT, True), (act.PYTHON, False)]
)
def test_without_an_accelerator_a_stack_can_show_the_beginning(scene: Scene, activity: str, begun: bool) -> None:
    reading = {"source": LOADER_WAIT, "busy_frac": None, "workers": (), "worker_kind": None}
    scene.ticks(0.5, **reading)
    scene.stacks[PID].says = StackSample(pid=PID, activity=activity, where="x (y.py:1)")
    scene.ticks(0.5, **reading)

    assert scene.watcher.begun is begun
