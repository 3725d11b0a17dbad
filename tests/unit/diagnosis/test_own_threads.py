from __future__ import annotations

import pytest

from pipetune.diagnosis import causes
from pipetune.diagnosis.own_threads import with_own_threads
from pipetune.records.observation import DISK, LOADER_WAIT, LOCK, NETWORK, RUNNING, RankReading, TaskReading
from pipetune.sampler.stacks import activity as act
from tests.unit.diagnosis.scenes import judged, shares_of, team, with_stacks
from tests.watch_fakes import main_reading, rank_readings, task_reading, workers

WAITS = main_reading(wait=LOCK, wchan="futex_do_wait", write_chars=0, read_chars=0)
ASLEEP = task_reading(state="S", wait=LOCK, wchan="futex_do_wait", cpu_frac=0.01, run_delay_frac=0.0)


def _pool(*threads: TaskReading, count: int = 40, main: TaskReading = WAITS) -> list[RankReading]:
    """A job that has no loader workers, but threads that compute."""
    readings = rank_readings(
        [None] * count, source=LOADER_WAIT, main=main, workers=(), worker_kind=None, youngest_worker_s=None,
        threads=threads,
    )  # fmt: skip
    return with_stacks(readings, act.LOADER, act.LOADER, act.MODEL, every=2)


@pytest.mark.parametrize(
    ("thread", "cause"),
    [
        (task_reading(cpu_frac=0.95, run_delay_frac=0.01), causes.CPU_DECODE),
        (task_reading(cpu_frac=0.3, run_delay_frac=0.65), causes.CPU_STARVED),
        (task_reading(state="D", wait=DISK, cpu_frac=0.1, read_bytes=4_000_000), causes.DISK),
        (task_reading(state="S", wait=NETWORK, wchan="wait_woken", cpu_frac=0.05), causes.NETWORK),
    ],
)
def test_a_wait_for_threads_of_the_process_is_what_these_do(thread: TaskReading, cause: str) -> None:
    verdict = judged(_pool(*team(thread, 2)))

    assert verdict.cause == cause
    assert verdict.lost_frac == pytest.approx(2 / 3, abs=0.05)
    assert "2 loader worker threads" in " ".join(verdict.evidence)
    assert [worker.pid for worker in verdict.workers] == [task.pid for task in team(thread, 2)]


def test_threads_that_do_nothing_explain_no_wait() -> None:
    assert judged(_pool(*team(ASLEEP, 2))).cause == causes.UNDETERMINED


def test_which_threads_compute_is_known_some_readings_later_only() -> None:
    readings = [*_pool(count=6), *_pool(*workers(1), count=34)]

    assert set(shares_of(judged(readings))) <= {causes.CPU_DECODE, causes.CPU_STARVED}


def test_threads_are_not_the_loader_of_a_main_thread_that_computes() -> None:
    main = main_reading(state="R", wait=RUNNING, wchan=None, cpu_frac=0.98, read_chars=0, write_chars=0)
    readings = rank_readings(
        [None] * 40, source=LOADER_WAIT, main=main, workers=(), worker_kind=None, threads=workers(2)
    )
    verdict = judged(with_stacks(readings, act.MODEL, every=2))

    assert verdict.cause == causes.HEALTHY
    assert "no loader workers; 2 other threads of the process on 1.9 cores" in verdict.evidence


def test_where_there_are_loader_workers_other_threads_do_not_count() -> None:
    readings = rank_readings([0.4] * 4, threads=workers(2))

    assert with_own_threads(readings) is readings


def test_without_threads_that_compute_nothing_changes() -> None:
    readings = rank_readings([0.4] * 4, workers=(), worker_kind=None)

    assert with_own_threads(readings) is readings
