from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import replace
from statistics import fmean

import pytest

from pipetune.measure import phases
from pipetune.measure.phases import (
    MIN_ANSWER_S,
    MIN_RATE_WINDOWS,
    MIN_WINDOWS,
    OVERTIME,
    PhaseProgress,
    Phases,
    Question,
    answered,
    plan_phases,
    run_phases,
)  # fmt: skip
from pipetune.records.sweep import StepTime
from pipetune.stats.noise import noise_of_run
from pipetune.stats.rates import rate_interval, window_durations, within_error


def steps(durations_s: Iterator[float]) -> Iterator[StepTime]:
    now = 10**9
    for duration in durations_s:
        end = now + round(duration * 1e9)
        yield StepTime(
            t_start_ns=now,
            data_wait_s=0.0,
            h2d_s=None,
            compute_s=duration,
            idle_s=duration / 2,
            t_end_ns=end,
            samples=8,
        )
        now = end


def constant(duration_s: float, slow_first: int = 0, factor: float = 0.1) -> Iterator[float]:
    for _ in range(slow_first):
        yield duration_s * factor
    while True:
        yield duration_s


def labels(durations: Iterator[float], workers: int, prefetch: int, seconds: float, limit: float = 60.0):
    progress = PhaseProgress()
    timing = plan_phases(workers, prefetch, seconds, limit)
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


def test_a_fast_loader_is_steady_sooner() -> None:
    fast, slow = (labels(constant(0.064 / rate), workers=2, prefetch=2, seconds=1)[1] for rate in (20, 4))
    assert fast.steady
    assert slow.steady
    assert fast.warmup_batches == 8 + 2 * 32  # 0.1 s each
    assert slow.warmup_batches * 0.016 >= 0.8


def test_many_workers_take_four_batches_each_for_a_window() -> None:
    _, progress = labels(constant(0.001), workers=32, prefetch=2, seconds=1)
    assert progress.warmup_batches == 2 * 32 * 2 + 2 * 128


def test_a_window_is_never_shorter_than_a_tenth_of_a_second() -> None:
    _, progress = labels(constant(0.0005), workers=1, prefetch=2, seconds=1)
    assert (progress.warmup_batches - 4) * 0.0005 == pytest.approx(0.2, rel=0.01)


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
    assert got.count("timed") == MIN_RATE_WINDOWS * 8
    assert MIN_RATE_WINDOWS * 8 >= OVERTIME * 4


def test_a_burst_of_prefetched_batches_does_not_decide_the_size_of_windows() -> None:
    got, progress = labels(constant(1.0, slow_first=40, factor=0.001), workers=4, prefetch=5, seconds=5, limit=0.03)
    assert progress.window_batches == 4
    assert got.count("timed") >= MIN_RATE_WINDOWS * 4


def test_a_loader_that_ends_during_the_warm_up_ends_the_phases() -> None:
    short = (0.1 for _ in range(3))
    got, progress = labels(short, workers=4, prefetch=4, seconds=1)
    assert got == ["warmup"] * 3
    assert progress.warmup_batches == 3


def test_no_batch_at_all() -> None:
    got, progress = labels(iter(()), workers=1, prefetch=1, seconds=1)
    assert got == []
    assert progress == PhaseProgress()


def test_without_workers_windows_are_single_batches_at_least() -> None:
    got, progress = labels(constant(2.0), workers=0, prefetch=0, seconds=2)
    assert progress.window_batches == 1
    assert got.count("timed") >= 3


def restless(duration_s: float, spread: float) -> Iterator[float]:
    """Batches that take a little more or a little less."""
    draw = random.Random(0)
    while True:
        yield duration_s * draw.uniform(1 - spread, 1 + spread)


def asked(durations: Iterator[float], question: Question, seconds: float = 10) -> tuple[float, PhaseProgress]:
    """Length of the timed phase (s)."""
    progress = PhaseProgress()
    timing = plan_phases(1, 2, seconds, 60.0)
    timed = [step for phase, step in run_phases(steps(durations), timing, progress, question) if phase == "timed"]
    return sum(step.compute_s for step in timed), progress


def test_a_question_that_is_answered_ends_the_timed_phase() -> None:
    # 8 samples in 0.05 s are 160/s; far from 300/s whatever the machine does.
    took, progress = asked(restless(0.05, 0.2), Question(levels=(300.0,), run_noise=0.02))
    assert MIN_ANSWER_S <= took < MIN_ANSWER_S + 0.5
    assert took / 0.05 // progress.window_batches >= MIN_WINDOWS
    assert progress.answered


def test_while_the_answer_is_open_it_goes_on_beyond_its_length() -> None:
    def up_and_down() -> Iterator[float]:
        while True:
            yield from [0.03] * 15 + [0.07] * 15

    took, progress = asked(up_and_down(), Question(levels=(160.0,), run_noise=0.001), seconds=2)
    assert took == pytest.approx(OVERTIME * 2, abs=0.2)
    assert not progress.answered


def bursts(draw: random.Random) -> Iterator[float]:
    """Batches of 0.05 s as restless workers deliver them: standard deviation of half the mean; runs differ by 3 %."""
    run = math.exp(draw.gauss(0, 0.03))
    while True:
        yield 0.05 * run * draw.gammavariate(4, 1 / 4)


def test_a_candidate_at_the_target_is_seldom_called_above_or_below_it() -> None:
    """Asked every 0.1 s, 20 % of them were: the more often is looked, the more often chance decides."""
    draw, repeats, target = random.Random(1), 300, 8 / 0.05
    wrong, seconds = 0, []
    for _ in range(repeats):
        progress = PhaseProgress()
        question = Question(levels=(target,), run_noise=0.03)
        got = list(run_phases(steps(bursts(draw)), plan_phases(2, 2, 4.0, 60.0), progress, question))
        warmup, timed = ([step for phase, step in got if phase == name] for name in ("warmup", "timed"))
        windows = window_durations(timed, warmup[-1].t_end_ns, progress.window_batches)
        _, low, high = rate_interval(
            windows, 8 * progress.window_batches, noise_of_run(0.03, 0.005, 0.5), ended_early=progress.answered
        )
        wrong += not low <= target <= high
        seconds.append((timed[-1].t_end_ns - warmup[-1].t_end_ns) / 1e9)
    assert wrong / repeats <= 0.08
    assert fmean(seconds) < OVERTIME * 4.0 + 0.5


def test_the_question_is_looked_at_when_the_time_has_doubled(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[float] = []

    def never(question: Question, timed: list[StepTime], began_ns: int, progress: PhaseProgress) -> bool:
        looks.append((timed[-1].t_end_ns - began_ns) / 1e9)
        return False

    monkeypatch.setattr(phases, "answered", never)
    _, progress = asked(constant(0.02), Question(levels=(10.0,), run_noise=0.02), seconds=10)
    assert looks == pytest.approx([1.5, 3.0, 6.0, 12.0, 24.0], abs=0.1)
    assert not progress.answered


def test_what_more_time_would_not_make_surer_ends() -> None:
    # An accelerator that waits half of the time, on a machine whose runs differ by 5 %: seconds change nothing.
    took, _ = asked(restless(0.05, 0.02), Question(levels=(160.0,), run_noise=0.05))
    assert took < 4
    took, _ = asked(restless(0.05, 0.02), Question(run_noise=0.05))
    assert took < 4


def test_an_accelerator_that_the_loader_slows_scatters_as_the_loader_does() -> None:
    """The rate is known to 2 % within the run: beside 5 % between runs more time would not help, beside 1 % it does."""
    busy = [replace(step, idle_s=0.0) for _, step in zip(range(70), steps(restless(0.05, 0.2)), strict=False)]

    def enough(device_noise: float | None, alone: float | None) -> bool:
        question = Question(run_noise=0.05, device_noise=device_noise, alone_samples_per_s=alone)
        return answered(question, busy[10:], busy[9].t_end_ns, PhaseProgress(window_batches=5))

    rate = 8 * 60 / ((busy[-1].t_end_ns - busy[9].t_end_ns) / 1e9)
    assert not enough(device_noise=0.01, alone=None)
    assert not enough(device_noise=0.01, alone=rate)
    assert enough(device_noise=0.01, alone=1.08 * rate)
    assert enough(device_noise=None, alone=rate)  # the CPU


def test_a_short_phase_stays_short() -> None:
    took, _ = asked(constant(0.02), Question(levels=(10.0,), run_noise=0.02), seconds=0.4)
    assert took < 0.7


def epochs(batches: int, duration_s: float, wait_s: float) -> Iterator[float]:
    while True:
        yield duration_s + wait_s
        yield from [duration_s] * (batches - 1)


def of_epochs(batches: int, known_after: int, seconds: float = 3.0) -> tuple[list[float], PhaseProgress, int]:
    """Windows (s), progress and timed batches of a loader whose epochs are known after so many batches."""
    progress, timed = PhaseProgress(), list[StepTime]()
    seen = 0
    question = Question(run_noise=0.01)
    phases = Phases(
        plan_phases(1, 2, seconds, 6.0), progress, question, epoch=lambda: batches if seen >= known_after else None
    )
    for step in steps(epochs(batches, 0.02, 0.25)):
        seen += 1
        if phases.push(step) == "timed":
            timed.append(step)
        if phases.complete:
            break
    began_ns = timed[0].t_start_ns
    return window_durations(timed, began_ns, progress.window_batches), progress, len(timed)


def test_windows_of_a_loader_with_short_epochs_are_equal_parts_of_epochs() -> None:
    windows, progress, count = of_epochs(64, known_after=65)
    assert (progress.window_batches, progress.epoch_windows) == (16, 4)
    assert windows == pytest.approx([0.32, 0.32, 0.32, 0.57] * 2, rel=0.01), "two epochs, each with its wait"
    assert within_error(windows, 4)[0] < 1e-6, "the first look at the question finds no scatter"
    assert count == 128


def test_parts_of_an_epoch_need_not_have_equally_many_batches() -> None:
    windows, progress, count = of_epochs(67, known_after=68)
    assert (progress.window_batches, count) == (16.75, 134)
    assert len(windows) == 8
    assert sum(windows) == pytest.approx(2 * (67 * 0.02 + 0.25))


def test_many_short_epochs_are_windows_themselves() -> None:
    windows, progress, _ = of_epochs(2, known_after=3)
    assert progress.epoch_windows == 1
    assert progress.window_batches == 2
    assert windows == pytest.approx([0.29] * len(windows))


def test_the_warm_up_ends_with_an_epoch_whose_length_is_known() -> None:
    _, progress, _ = of_epochs(64, known_after=0)
    assert progress.warmup_batches <= 65
    assert progress.steady


def test_an_epoch_that_does_not_end_is_not_waited_for() -> None:
    windows, progress, _ = of_epochs(64, known_after=10**9)
    assert progress.warmup_batches < 160, "three seconds"
    assert progress.window_batches < 64
    assert max(windows) > 1.1 * min(windows)


def test_epochs_longer_than_the_timed_phase_are_no_windows() -> None:
    _, progress, _ = of_epochs(1000, known_after=3)
    assert progress.window_batches < 64


def test_an_expected_epoch_that_is_too_short_does_not_end_the_warm_up_before_the_backlog_is_used_up() -> None:
    progress = PhaseProgress()
    plan = plan_phases(8, 2, 3.0, 6.0)
    phases = Phases(plan, progress, Question(run_noise=0.01), epoch=lambda: 10)
    for step in steps(itertools.repeat(0.02)):
        if phases.push(step) == "timed":
            break
    assert progress.warmup_batches >= plan.backlog == 32


def _fed_steps(step_s: float, wait_frac: float = 0.0) -> Iterator[StepTime]:
    for step in steps(constant(step_s)):
        yield replace(step, data_wait_s=wait_frac * step_s)


@pytest.mark.parametrize(("wait_frac", "count"), [(0.0, 6), (0.2, 10)])
def test_a_loop_of_slow_steps_that_hardly_waits_is_measured_in_six_of_them(wait_frac: float, count: int) -> None:
    """A step of three seconds: with two workers, whose batches count in pairs, it took ten of them otherwise."""
    plan = replace(plan_phases(2, 2, 4.0, 8.0), ends_when_fed=True)
    measured = Phases(plan, PhaseProgress(), Question(run_noise=0.03))
    pushed = 0
    for step in _fed_steps(3.0, wait_frac):
        measured.push(step)
        pushed += 1
        if measured.complete:
            break
    assert pushed == count
