from __future__ import annotations

import os
from dataclasses import replace

import pytest

from pipetune.diagnosis import causes
from tests.unit.diagnosis.scenes import ON_CORE
from tests.unit.watching.watch_scene import (
    PID,
    TRAINING,
    WAITING,
    Scene,
    make_scene,
)
from tests.watch_fakes import INTERVAL_S, rank_reading


def test_a_window_closes_when_its_time_is_over(scene: Scene) -> None:
    windows = scene.windows(35, **TRAINING)

    assert [window.number for window in windows] == [1, 2, 3]
    assert [window.seconds for window in windows] == pytest.approx([10.0] * 3, abs=INTERVAL_S)
    assert windows[1].started_unix_s - windows[0].started_unix_s == pytest.approx(windows[0].seconds)


def test_a_window_has_the_verdict_of_its_readings(scene: Scene) -> None:
    (window,) = scene.windows(10.5, **WAITING | {"busy_frac": 0.4})

    (verdict,) = window.verdicts
    assert verdict.cause == causes.CPU_DECODE
    assert verdict.lost_frac == pytest.approx(0.6)
    assert verdict.looks == 20
    assert verdict.seconds == pytest.approx(window.seconds)


def test_each_window_is_judged_by_its_own_readings(scene: Scene) -> None:
    scene.windows(0.5, **TRAINING)
    first = scene.windows(10, **TRAINING)
    second = scene.windows(10, **WAITING)

    assert [window.verdicts[0].cause for window in (*first, *second)] == [causes.HEALTHY, causes.CPU_DECODE]


def test_stalls_are_reported_when_they_end(scene: Scene) -> None:
    scene.ticks(3, **TRAINING)
    stalled = scene.ticks(2, **WAITING)
    since = scene.watcher.stalled_since_ns(PID)
    ended = scene.ticks(0.5, **TRAINING)

    assert [tick.stalls for tick in stalled] == [()] * 4
    assert since == stalled[0].reading.machine.t_ns - round(INTERVAL_S * 1e9)
    ((stall,),) = [tick.stalls for tick in ended]
    assert (stall.pid, stall.cause) == (PID, causes.CPU_DECODE)
    assert stall.lost_s == pytest.approx(2.0)
    assert scene.watcher.history.stalls == [stall]
    assert scene.watcher.stalled_since_ns(PID) is None


def test_a_stall_is_in_the_window_in_which_it_ends(scene: Scene) -> None:
    scene.ticks(8, **TRAINING)
    first = scene.windows(4, **WAITING)
    second = scene.windows(10, **TRAINING)

    assert [len(window.stalls) for window in (*first, *second)] == [0, 1]


def test_the_end_of_the_watching_ends_stalls(scene: Scene) -> None:
    scene.ticks(3, **TRAINING)
    scene.ticks(2, **WAITING)

    (stall,) = scene.watcher.end_stalls()

    assert stall.lost_s == pytest.approx(2.0)
    assert scene.watcher.history.stalls == [stall]
    window = scene.watcher.close_window()
    assert window is not None
    assert window.stalls == (stall,)
    assert scene.watcher.end_stalls() == []


def test_a_rank_that_ends_ends_its_stall_and_is_judged_once_more(scene: Scene) -> None:
    scene.job.rank(PID + 100, 1, **TRAINING)
    scene.ticks(4, rank=0, **TRAINING)
    scene.ticks(2, rank=0, **WAITING)
    scene.job.end(PID)

    (tick,) = scene.ticks(0.5)
    first, second = scene.windows(20)

    assert [(stall.rank, stall.pid) for stall in tick.stalls] == [(0, PID)]
    assert [verdict.rank for verdict in first.verdicts] == [0, 1]
    assert [verdict.rank for verdict in second.verdicts] == [1]
    assert {verdict.rank for verdict in scene.watcher.history.summary()} == {0, 1}


def test_ranks_of_a_job_are_no_other_processes(scene: Scene) -> None:
    scene.job.rank(PID + 100, 1, **TRAINING | {"process_cpu_frac": 1.5, "workers": ()})
    scene.ticks(5, rank=0, **TRAINING | {"process_cpu_frac": 0.5, "workers": ()})
    both = scene.watcher.close_window()
    scene.job.end(PID + 100)
    scene.ticks(0.5, rank=0, **TRAINING | {"process_cpu_frac": 0.5, "workers": ()})
    alone = scene.watcher.close_window()

    assert both is not None
    assert alone is not None
    told = {verdict.rank: [line for line in verdict.evidence if "CPU busy" in line] for verdict in both.verdicts}
    assert "this rank uses 0.5" in told[0][0]
    assert told[0][0].endswith("the other rank 1.5")
    assert told[1][0].endswith("the other rank 0.5")
    (line,) = [line for line in alone.verdicts[0].evidence if "CPU busy" in line]
    assert "the job uses 0.5" in line


def test_a_job_that_has_ended_is_reported(scene: Scene) -> None:
    scene.ticks(1, **TRAINING)
    assert not scene.watcher.ended
    scene.job.end()
    scene.job.ended = True

    scene.ticks(1)

    assert scene.watcher.ended


def test_what_was_seen_since_the_last_window_can_be_had(scene: Scene) -> None:
    assert scene.watcher.close_window() is None
    scene.ticks(14, **TRAINING)

    window = scene.watcher.close_window()

    assert window is not None
    assert window.number == 2
    assert window.seconds == pytest.approx(4.0, abs=INTERVAL_S)
    assert scene.watcher.close_window() is None


def test_a_process_that_is_started_anew_is_another_rank(scene: Scene) -> None:
    scene.ticks(6, **WAITING | {"busy_frac": 0.4})
    scene.job.end()
    scene.ticks(0.5)
    scene.ticks(2, start=2, busy_frac=0.0, workers=(), worker_kind=None, main=ON_CORE)  # it has to begin by itself
    (window,) = scene.windows(3, start=2, **TRAINING)

    assert len(window.verdicts) == 2
    assert len(scene.watcher.history.summary()) == 2
    assert {verdict.cause for verdict in window.verdicts} == {causes.CPU_DECODE, causes.UNDETERMINED}


def test_workers_that_are_started_anew_are_a_cause(scene: Scene) -> None:
    # Epochs of two seconds, and half a second each for new workers.
    for _ in range(5):
        scene.ticks(1.5, **TRAINING)
        (tick,) = scene.ticks(0.5, **WAITING | {"youngest_worker_s": 0.2})

    window = tick.window or scene.watcher.close_window()
    assert window is not None
    assert window.verdicts[0].cause == causes.WORKER_START
    assert "persistent_workers=True" in (window.verdicts[0].advice or "")


def test_the_worst_rank_comes_first(scene: Scene) -> None:
    for number in range(4):
        reading = WAITING | {"busy_frac": 0.3} if number == 2 else TRAINING
        scene.job.rank(PID + number, number, **reading)

    (window,) = scene.windows(10.5)

    assert window.verdicts[0].rank == 2
    assert len(window.verdicts) == 4


def test_notes_are_reported_once(scene: Scene) -> None:
    scene.watcher.note("GPU 0 was found by its PID")
    scene.watcher.note("GPU 0 was found by its PID")
    first = scene.windows(10.5, **TRAINING)
    scene.watcher.note("GPU 0 was found by its PID")
    scene.watcher.note("another one")
    second = scene.windows(10, **TRAINING)

    assert [window.notes for window in (*first, *second)] == [("GPU 0 was found by its PID",), ("another one",)]


def test_a_gpu_that_is_lost_is_noted(scene: Scene) -> None:
    scene.ticks(4, **TRAINING)
    scene.job.ranks[PID, 1].device.lost = "nvmlDeviceGetSamples: GPU is lost"

    (window,) = scene.windows(10, **TRAINING)

    (note,) = window.notes
    assert "GPU of process 4000 cannot be read any more (nvmlDeviceGetSamples: GPU is lost)" in note


def test_an_nvml_that_is_too_slow_is_noted_once(scene: Scene) -> None:
    scene.ticks(4, **TRAINING)
    scene.job.ranks[PID, 1].device.slow = "NVML takes 3.0 ms, so it was read every 1 s"

    first, second = scene.windows(20.5, **TRAINING)

    assert first.notes == (
        "the GPU of process 4000: NVML takes 3.0 ms, so it was read every 1 s instead of every 0.5 s",
    )
    assert second.notes == ()


def test_the_machine_is_averaged_over_the_window(scene: Scene) -> None:
    scene.job.machine = {"cpu_busy_pct": 20.0, "psi_io_some_pct": None, "psi_scope": "cgroup", "cores": 3.0}
    scene.ticks(5.5, **TRAINING)
    scene.job.machine = {"cpu_busy_pct": 60.0, "psi_io_some_pct": 8.0, "cores": 2.0, "cost_s": 0.01}
    (window,) = scene.windows(5, **TRAINING)

    assert window.cpu_busy_pct == pytest.approx(40.0)
    assert window.psi_io_some_pct == pytest.approx(8.0)
    assert (window.cores, window.psi_scope, window.throttled_frac) == (2.0, "machine", None)
    assert window.own_core_frac == pytest.approx((0.001 + 0.01) / 2 / INTERVAL_S)


def test_what_watching_costs_is_reported() -> None:
    scene = make_scene(own_pid=os.getpid())
    assert scene.watcher.own_core_frac is None
    (window,) = scene.windows(10.5, **TRAINING)

    assert scene.watcher.own_core_frac == pytest.approx(0.001 / INTERVAL_S)
    assert window.own_rss_bytes is not None
    assert window.own_rss_bytes > 10**6
    assert make_scene().watcher.own_rss_bytes() is None


def test_a_live_view_sees_the_newest_seconds(scene: Scene) -> None:
    assert scene.watcher.verdicts(10) == ()
    scene.ticks(30, **TRAINING)
    scene.ticks(10, **WAITING)

    (newest,) = scene.watcher.verdicts(10)
    (longer,) = scene.watcher.verdicts(40)

    assert newest.lost_frac == pytest.approx(1.0)
    assert longer.lost_frac == pytest.approx(0.25)


def test_a_summary_is_of_all_windows(scene: Scene) -> None:
    scene.ticks(0.5, **TRAINING)
    scene.windows(30, **TRAINING)
    scene.windows(10, **WAITING)

    (verdict,) = scene.watcher.history.summary()

    assert verdict.seconds == pytest.approx(40, abs=1)
    assert verdict.lost_frac == pytest.approx(0.25, abs=0.02)
    assert verdict.cause == causes.CPU_DECODE
    assert sum(share.share for share in verdict.shares) == pytest.approx(1.0)


def test_a_summary_of_many_windows_is_that_of_all_of_them() -> None:
    scene = make_scene(window_s=4.0)
    scene.ticks(0.5, **TRAINING)
    for _ in range(150):
        scene.ticks(9, **TRAINING)
        scene.ticks(3, **WAITING)

    (verdict,) = scene.watcher.history.summary()

    assert verdict.seconds == pytest.approx(1800, abs=5)
    assert verdict.lost_frac == pytest.approx(0.25, abs=0.01)
    assert verdict.cause == causes.CPU_DECODE
    assert sum(share.share for share in verdict.shares) == pytest.approx(1.0)
    assert verdict.looks == pytest.approx(3600, abs=10)
    assert (scene.watcher.history.stall_count, len(scene.watcher.history.stalls)) == (149, 149)
    assert scene.watcher.history.stalled_s == pytest.approx(149 * 3)


def test_readings_are_kept_for_ten_minutes(scene: Scene) -> None:
    scene.ticks(700, **TRAINING)

    readings = scene.watcher.readings_of(PID)

    assert len(readings) == len(scene.watcher.machine) == 1200
    assert readings[-1].t_ns == scene.job.clock.now_ns
    assert scene.watcher.readings_of(1) == []


def test_a_window_of_ten_minutes_has_all_of_its_readings() -> None:
    (window,) = make_scene(window_s=600).windows(601, **TRAINING)

    assert window.verdicts[0].seconds == pytest.approx(window.seconds, rel=0.01)


def test_ticks_hand_on_the_readings_they_took(scene: Scene) -> None:
    (tick,) = scene.ticks(0.5, **TRAINING)

    expected = rank_reading(**TRAINING | {"t_ns": tick.reading.machine.t_ns, "pid": PID})
    assert tick.reading.ranks == (replace(expected, rank=None),)


def test_a_long_time_without_readings_counts_for_nothing(scene: Scene) -> None:
    """Ctrl-Z, and an hour later ``fg``."""
    scene.job.rank(**TRAINING)
    scene.ticks(6)
    scene.job.clock.sleep(3600.0)
    scene.job.machine = {"interval_s": 3600.0}
    scene.job.rank(**{**WAITING, "interval_s": 3600.0})
    tick = scene.watcher.tick()
    assert tick.window is not None
    (verdict,) = tick.window.verdicts
    assert verdict.lost_frac < 0.1
    assert any("nothing was read for 1 h" in note for note in tick.window.notes)
    assert tick.reading.ranks[0].interval_s == 0.0
