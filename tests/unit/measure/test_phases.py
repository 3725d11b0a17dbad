from __future__ import annotations

from collections.abc import Iterator

from pipetune.measure.phases import FEWEST_WINDOWS, MIN_WINDOWS, OVERTIME, Progress, plan, run_phases
from pipetune.records import StepTime


def steps(durations_s: Iterator[float]) -> Iterator[StepTime]:
    now = 10**9
    for duration in durations_s:
        end = now + round(duration * 1e9)
        yield StepTime(
            t_start_ns=now, data_wait_s=0.0, h2d_s=None, compute_s=duration, idle_s=0.0, t_end_ns=end, samples=8
        )
        now = end


def constant(duration_s: float, slow_first: int = 0, factor: float = 0.1) -> Iterator[float]:
    for _ in range(slow_first):
        yield duration_s * factor
    while True:
        yield duration_s


def labels(durations: Iterator[float], workers: int, prefetch: int, seconds: float, limit: float = 60.0):
    progress = Progress()
    timing = plan(workers, prefetch, seconds, limit)
    return [phase for phase, _ in run_phases(steps(durations), timing, progress)], progress


def test_the_backlog_of_prefetching_is_drained_before_timing() -> None:
    # 4 workers x depth 8 = 32 batches in store are delivered ten times too fast.
    got, progress = labels(constant(0.1, slow_first=32), workers=4, prefetch=8, seconds=5)
    assert progress.warmup_batches >= 64
    assert got.count("warmup") == progress.warmup_batches
    assert progress.steady


def test_windows_are_multiples_of_the_worker_count_and_fill_the_time() -> None:
    got, progress = labels(constant(0.05), workers=3, prefetch=2, seconds=6)
    assert progress.window_batches % 3 == 0
    assert got.count("timed") % 3 == 0
    assert got.count("timed") % progress.window_batches < progress.window_batches / 2
    assert got.count("timed") * 0.05 >= 6
    assert got.count("timed") // progress.window_batches >= MIN_WINDOWS


def test_a_rate_that_keeps_changing_is_not_called_steady_and_ends_at_the_limit() -> None:
    def slower_and_slower() -> Iterator[float]:
        duration = 0.1
        while True:
            yield duration
            duration *= 1.08

    got, progress = labels(slower_and_slower(), workers=1, prefetch=2, seconds=1, limit=8)
    assert not progress.steady
    assert got.count("timed") > 0


def test_slow_batches_get_overtime_for_enough_windows_but_not_for_ever() -> None:
    # 8 workers: a window is at least 8 batches of 1 s; six of them would take 48 s.
    got, progress = labels(constant(1.0), workers=8, prefetch=1, seconds=4)
    assert progress.window_batches == 8
    assert got.count("timed") == FEWEST_WINDOWS * 8
    assert FEWEST_WINDOWS * 8 >= OVERTIME * 4


def test_a_burst_of_prefetched_batches_does_not_decide_the_size_of_windows() -> None:
    got, progress = labels(constant(1.0, slow_first=40, factor=0.001), workers=4, prefetch=5, seconds=5, limit=0.03)
    assert progress.window_batches == 4
    assert got.count("timed") >= FEWEST_WINDOWS * 4


def test_a_loader_that_ends_during_the_warm_up_ends_the_phases() -> None:
    short = (0.1 for _ in range(3))
    got, progress = labels(short, workers=4, prefetch=4, seconds=1)
    assert got == ["warmup"] * 3
    assert progress.warmup_batches == 3


def test_no_batch_at_all() -> None:
    got, progress = labels(iter(()), workers=1, prefetch=1, seconds=1)
    assert got == []
    assert progress == Progress()


def test_without_workers_windows_are_single_batches_at_least() -> None:
    got, progress = labels(constant(2.0), workers=0, prefetch=0, seconds=2)
    assert progress.window_batches == 1
    assert got.count("timed") >= 3
