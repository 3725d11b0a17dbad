"""When the warm-up is over and when the timed phase is long enough. Pure: steps in, labelled steps out.

A timed phase with a question ends when the question is answered: when the rate's interval lies on one side of every
rate that it is compared with, or when the scatter within the run is small beside that between runs, which a longer run
would not reduce. Until then it continues, even beyond its set length.

Why not a fixed number of batches: prefetching stores up to workers x depth batches during the wait for the first one,
and a loader that is too slow in the long run is hidden by that backlog at first. Other tools discard 2 to 10 batches;
with 16 workers and a depth of 2 the backlog alone is 32.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pipetune.records.sweep import StepTime
from pipetune.stats.intervals import Z95
from pipetune.stats.noise import noise_of_run
from pipetune.stats.rates import rate_interval, window_durations

#: Two successive warm-up windows agree when their rates differ by less than this share.
STEADY_TOLERANCE = 0.05
#: A warm-up window lasts at least this long; shorter ones compare noise.
WARMUP_WINDOW_S = 0.4
#: Number of windows that the timed phase is divided into (up to 23 where the batches do not divide evenly), number that
#: it waits for, and minimum for an interval (three: two degrees of freedom).
TARGET_WINDOWS = 12
MIN_WINDOWS = 6
MIN_RATE_WINDOWS = 3
#: Factor by which the timed phase may exceed its length to complete MIN_WINDOWS; for MIN_RATE_WINDOWS it has no limit.
OVERTIME = 3.0
#: Minimum time before a question counts as answered (s), because the rate of a moment says little.
MIN_ANSWER_S = 1.5
#: Time between two checks whether the question is answered (s).
CHECK_S = 0.1
#: Scatter within the run is small if it is at most this share of that between runs.
SMALL_SHARE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a measurement has to decide, so that it can end as soon as that is decided."""

    levels: tuple[float, ...] = ()
    """Rates that the measured one is compared with (samples/s)."""
    run_noise: float
    """See :func:`pipetune.stats.noise.run_noise`."""
    device_steady: bool = True
    """Whether an accelerator that is never idle has a steady rate: not the CPU, whose rate scatters as a loader's."""
    overtime: float = OVERTIME
    """Factor by which the timed phase may exceed its length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhasePlan:
    """How one candidate is timed."""

    unit: int
    """A window is a multiple of so many batches: the worker count, because workers deliver in bursts of one each."""
    backlog: int
    """Minimum number of batches to discard: twice what prefetching may have stored."""
    seconds: float
    warmup_limit_s: float


@dataclass(slots=True, kw_only=True)
class PhaseProgress:
    """What is known of the phases so far."""

    warmup_batches: int = 0
    steady: bool = False
    window_batches: int = 0


def plan_phases(num_workers: int, prefetch_depth: int, seconds: float, warmup_limit_s: float) -> PhasePlan:
    """The plan for a loader with ``num_workers`` that keep ``prefetch_depth`` batches ready each."""
    unit = max(1, num_workers)
    return PhasePlan(
        unit=unit, backlog=max(2, 2 * unit * prefetch_depth), seconds=seconds, warmup_limit_s=warmup_limit_s
    )


def run_phases(
    steps: Iterator[StepTime], plan: PhasePlan, progress: PhaseProgress, question: Question | None = None
) -> Iterator[tuple[str, StepTime]]:
    """Label each step ``warmup`` or ``timed``; stop when the timed phase is complete or the steps end.

    The first step is always warm-up, because it includes the wait for the first batch.

    Args:
        progress: updated with each step.
        question: ends the timed phase when it is answered, at the latest after ``OVERTIME`` times its length.
    """
    for step in _warm_up(steps, plan, progress):
        yield "warmup", step
        last = step
    if progress.warmup_batches == 0:
        return
    began_ns = last.t_end_ns
    timed: list[StepTime] = []
    check_s = min(MIN_ANSWER_S, plan.seconds)
    for count, step in enumerate(steps, start=1):
        units, rest = divmod(count, plan.unit)
        # The size of a window is decided as late as possible: an estimate from the warm-up, whose batches had been
        # prefetched, can be wrong by any factor.
        progress.window_batches = plan.unit * max(1, units // TARGET_WINDOWS)
        yield "timed", step
        elapsed = (step.t_end_ns - began_ns) / 1e9
        over = elapsed >= (OVERTIME if question is None else question.overtime) * plan.seconds
        long_enough = elapsed >= plan.seconds and (units >= MIN_WINDOWS or (units >= MIN_RATE_WINDOWS and over))
        if rest == 0 and long_enough and (question is None or over):
            return
        if question is None:
            continue
        timed.append(step)
        if rest == 0 and units >= MIN_WINDOWS and elapsed >= check_s:
            check_s = elapsed + max(CHECK_S, elapsed / 20)  # each check goes over all steps
            if answered(question, timed, began_ns, progress.window_batches):
                return


def answered(question: Question, timed: list[StepTime], began_ns: int, window_batches: int) -> bool:
    """Whether more steps would not change the answer (see the module's docstring)."""
    durations = window_durations(timed, began_ns, window_batches)
    samples = sum(step.samples for step in timed[: len(durations) * window_batches])
    idle_frac = min(1.0, sum(step.idle_s for step in timed) / ((timed[-1].t_end_ns - began_ns) / 1e9))
    noise = noise_of_run(question.run_noise, idle_frac) if question.device_steady else question.run_noise
    rate, low, high = rate_interval(durations, samples / len(durations), noise)
    half, between = (high - rate) / rate, Z95 * noise
    if all(not low < level <= high for level in question.levels) and question.levels:
        return True
    return half**2 - between**2 <= (SMALL_SHARE * between) ** 2


def _warm_up(steps: Iterator[StepTime], plan: PhasePlan, progress: PhaseProgress) -> Iterator[StepTime]:
    """The steps until the backlog is used up and two windows agree."""
    began_ns: int | None = None
    window_start_ns = window_batches = 0
    previous_s = 0.0
    for step in steps:
        progress.warmup_batches += 1
        if began_ns is None:
            began_ns = step.t_end_ns
        if progress.warmup_batches <= plan.backlog:
            window_start_ns = step.t_end_ns
        else:
            window_batches += 1
            window_s = (step.t_end_ns - window_start_ns) / 1e9
            if window_batches % plan.unit == 0 and window_s >= WARMUP_WINDOW_S:
                batch_s = window_s / window_batches
                progress.steady = previous_s > 0 and abs(batch_s / previous_s - 1) < STEADY_TOLERANCE
                previous_s, window_start_ns, window_batches = batch_s, step.t_end_ns, 0
        yield step
        if progress.steady or (step.t_end_ns - began_ns) / 1e9 >= plan.warmup_limit_s:
            return
