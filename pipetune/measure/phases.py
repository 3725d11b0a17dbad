"""When the warm-up is over and when the timed phase is long enough. Pure: steps in, labelled steps out.

A timed phase with a question ends when the question is answered: when the rate's interval lies on one side of every
rate that it is compared with, or when the scatter within the run is small beside that between runs, which a longer run
would not reduce. Until then it continues, even beyond its set length.

Each look at the question is a chance to be wrong: asked every 0.1 s, up to 40 times, a candidate whose true rate is the
compared one was called above or below it in 14 to 20 % of simulated runs whose steps vary by 30 to 50 % (standard
deviation / mean), instead of 5 %. So it is looked at :data:`MIN_ANSWER_S` and then whenever the time has doubled, four
times in all, with an interval that allows for as many looks (:data:`pipetune.stats.rates.EARLY_FACTOR`): 5 to 7 % of
1,500 such runs, also where repetitions hardly scatter. Steps that resemble their neighbours (autocorrelation 0.5 and
0.8 from step to step) make it 10 and 18 %, from 25 and 33 %.

Why not a fixed number of batches: prefetching stores up to workers x depth batches while the first one is awaited, and
a loop that is starved in the long run is fed from that backlog at first. Other tools discard 2 to 10 batches; with 16
workers and a depth of 2 the backlog alone is 32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, variance
from typing import Protocol

from pipetune.records.sweep import StepTime
from pipetune.stats.intervals import Z95
from pipetune.stats.noise import noise_of_run
from pipetune.stats.rates import rate_interval, step_slower_frac, window_durations, within_interval

#: Two successive warm-up windows agree when their rates differ by less than this share; or by less than chance explains
#: (95 %) by the scatter of the steps in them, up to a larger one. Why the second: where windows scatter by 5 %, the
#: first is met by chance every other time, and a loader that has long been steady is waited for.
STEADY_TOLERANCE, STEADY_BY_CHANCE = 0.05, 0.15
#: Deliveries of all workers that a window needs for its scatter to be known.
_STEADY_DELIVERIES = 4
#: A warm-up window lasts at least this long; of a fast loader, so many batches, and four for each worker, over at least
#: a quarter of the time will do: they tell as much. benchmarks/measuring/noise_floor.py compares both.
WARMUP_WINDOW_S, WARMUP_WINDOW_BATCHES, WARMUP_LEAST_S = 0.4, 32, 0.1
_WARMUP_BATCHES_PER_WORKER = 4
#: Number of windows that the timed phase is divided into (up to 23 where the batches do not divide evenly), number that
#: it waits for, and minimum for an interval (three: two degrees of freedom).
TARGET_WINDOWS = 12
MIN_WINDOWS = 6
MIN_RATE_WINDOWS = 3
#: Parts that each epoch is cut into where epochs begin and end within the timed phase, and least number of epochs. Four
#: parts of two epochs tell as much of the scatter as three whole epochs, and take two thirds of the time.
EPOCH_PARTS, MIN_EPOCHS = 4, 2
#: Factor by which the timed phase may exceed its length to complete MIN_WINDOWS; for MIN_RATE_WINDOWS it has no limit.
OVERTIME = 3.0
#: The same factor for a loop that spends no more than this share of the time waiting for batches: a longer run would
#: narrow the scatter of its own steps only. Why it matters: where a step takes three seconds, three more take ten.
FED_OVERTIME, FED_WAIT_FRAC = 2.0, 0.01
#: The warm-up of such a loop ends after the length of the timed phase where that takes no more than so many steps.
_SLOW_STEPS = 3
#: Least time before a question is answered (s), because the rate of a moment says little; the next looks are at twice
#: the time of the one before.
MIN_ANSWER_S = 1.5
#: Scatter within the run is small if it is at most this share of that between runs.
SMALL_SHARE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a measurement has to decide, so that it can end as soon as that is decided."""

    levels: tuple[float, ...] = ()
    """Rates that the measured one is compared with (samples/s)."""
    run_noise: float
    """See :func:`pipetune.stats.noise.run_noise`."""
    device_noise: float | None = None
    """See :func:`pipetune.stats.noise.device_noise`; ``None``: the CPU, whose rate scatters as the loader's does."""
    alone_samples_per_s: float | None = None
    """Rate of the accelerator without a loader; ``None``: an emulated one, which no loader slows."""
    overtime: float = OVERTIME
    """Factor by which the timed phase may exceed its length."""
    full_samples_per_s: float | None = None
    """Rate of the accelerator when batches are always ready; ``None``: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhasePlan:
    """How one candidate is timed."""

    unit: int
    """A window is a multiple of so many batches: the worker count, because workers deliver in bursts of one each."""
    backlog: int
    """Minimum number of batches to discard: twice what prefetching may have stored."""
    seconds: float
    warmup_limit_s: float
    window_batches: float = WARMUP_WINDOW_BATCHES
    """A warm-up window ends after so many, if they took less time than it has otherwise."""
    by_chance: float = STEADY_BY_CHANCE
    """Rates of two warm-up windows may differ by this share where chance explains it."""
    ends_when_fed: bool = False
    """A loop that hardly waits is not timed beyond :data:`FED_OVERTIME`, each of its steps is a window, and slow ones
    are warmed up for no longer than they are timed."""


@dataclass(slots=True, kw_only=True)
class PhaseProgress:
    """What is known of the phases so far."""

    warmup_batches: int = 0
    steady: bool = False
    window_batches: float = 0
    """Not a whole number where windows are parts of epochs whose batches do not divide evenly."""
    epoch_windows: int = 1
    """So many windows are an epoch, and the same part of each epoch is like the same part of the others."""
    answered: bool = False
    """The question ended the timed phase, not its length."""
    whole_epochs: bool = False
    """The timed phase lasts whole epochs, with the start of each in it."""


class Others(Protocol):
    """The other ranks of the same measurement. All of them warm up until the last is warm, and go on until the last
    has what it needs: those that stopped would leave their cores to the others."""

    def all_warm(self) -> bool:
        """This rank is warm; whether all are."""

    def all_done(self) -> bool:
        """This rank's timed phase is long enough; whether that of all is."""


def plan_phases(num_workers: int, prefetch_depth: int, seconds: float, warmup_limit_s: float) -> PhasePlan:
    """The plan for a loader with ``num_workers`` that keep ``prefetch_depth`` batches ready each."""
    unit = max(1, num_workers)
    return PhasePlan(
        unit=unit, backlog=max(2, 2 * unit * prefetch_depth), seconds=seconds, warmup_limit_s=warmup_limit_s
    )


class Phases:
    """Labels steps one by one, where they are pushed and cannot be pulled: in somebody else's training loop.

    The first step is always warm-up, because it includes the wait for the first batch.

    Args:
        progress: updated with each step.
        question: ends the timed phase when it is answered, at the latest after ``OVERTIME`` times its length.
        others: ranks that are measured at the same time.
        epoch: of a loader whose epochs begin and end while it is measured: how many batches one has, and ``None`` until
            that is known. Where epochs are shorter than the timed phase, whole ones are timed, and the scatter is that
            between the same parts of them: if some windows had the wait for new workers and others had not, their
            scatter would be that wait, and no longer run would lessen it.
    """

    def __init__(
        self, plan: PhasePlan, progress: PhaseProgress, question: Question | None = None, others: Others | None = None,
        epoch: Callable[[], int | None] | None = None,
    ) -> None:  # fmt: skip
        self._plan, self._progress, self._question, self._others = plan, progress, question, others
        self._epoch, self._first_ns = epoch, 0
        self._in_epochs = False
        self.complete = False
        """The timed phase is over: no further step is wanted."""
        self._warm_up = _WarmUp(plan, progress)
        self._warm = self._done = False
        self._began_ns: int | None = None
        self._timed: list[StepTime] = []
        self._count = 0
        self._waited_s = self._elapsed_s = 0.0
        self._look_s = min(MIN_ANSWER_S, plan.seconds)

    def push(self, step: StepTime) -> str:
        """The step's phase: ``warmup`` or ``timed``."""
        if self._began_ns is None:
            if self._warm:
                self._progress.warmup_batches += 1
            else:
                self._warm = self._warm_up.ends_with(step)
            if self._may_begin(step) and (self._others is None or self._others.all_warm()):
                self._began_ns, self._progress.whole_epochs = step.t_end_ns, self._in_epochs
            return "warmup"
        self._count += 1
        self._waited_s += step.data_wait_s + step.others_s
        elapsed = self._elapsed_s = (step.t_end_ns - self._began_ns) / 1e9
        unit, least = self._divide()
        units, rest = divmod(self._count, unit)
        question, seconds = self._question, self._plan.seconds
        overtime = OVERTIME if question is None else question.overtime
        over = elapsed >= (min(FED_OVERTIME, overtime) if self._is_fed() else overtime) * seconds
        long_enough = elapsed >= seconds and (units >= least or (units >= MIN_RATE_WINDOWS and over))
        if not self._done and rest == 0 and long_enough and (question is None or over):
            self._done = True
        elif not self._done and question is not None:
            self._timed.append(step)
            if rest == 0 and units >= least and elapsed >= self._look_s:
                self._look_s = 2 * elapsed
                self._done = answered(question, self._timed, self._began_ns, self._progress)
                self._progress.answered = self._done
        self.complete = self._done and (self._others is None or self._others.all_done())
        return "timed"

    def _is_fed(self) -> bool:
        """Whether the loop hardly waits for batches, where that may end the timed phase."""
        return self._plan.ends_when_fed and self._waited_s <= FED_WAIT_FRAC * self._elapsed_s

    def _divide(self) -> tuple[int, int]:
        """Cut the timed phase into windows; the batches after which it may end, and how often at least.

        The size of a window is decided as late as possible: an estimate from the warm-up, whose batches had been
        prefetched, can be wrong by any factor.
        """
        progress = self._progress
        unit, least = self._plan.unit, MIN_WINDOWS
        batches = self._epoch() if self._in_epochs and self._epoch is not None else None
        if batches:
            unit, least = batches, MIN_EPOCHS if batches > 1 else MIN_RATE_WINDOWS
        elif self._is_fed():
            unit = 1  # bursts of deliveries do not reach the loop
        units = self._count // unit
        parts = min(EPOCH_PARTS, batches) if batches and units < MIN_WINDOWS else 1
        progress.epoch_windows = parts
        progress.window_batches = unit / parts if parts > 1 else unit * max(1, units // TARGET_WINDOWS)
        return unit, least

    def _may_begin(self, step: StepTime) -> bool:
        """Whether the timed phase may begin after this step.

        Where epochs come within it, it lasts whole ones. None has more of a backlog than another, so that the warm-up
        needs no more than one, and a little of the next: the wait for new workers is then in the middle of a window,
        also where epochs differ by a batch.
        """
        if self._epoch is None:
            return self._warm
        batches, seen = self._epoch(), self._progress.warmup_batches
        self._first_ns = self._first_ns or step.t_start_ns
        elapsed_s = (step.t_end_ns - self._first_ns) / 1e9
        if not batches:
            return self._warm and elapsed_s >= self._plan.seconds
        self._in_epochs = batches * elapsed_s / seen <= self._plan.seconds
        if self._in_epochs and seen > max(batches + batches // (2 * EPOCH_PARTS), self._plan.backlog):
            self._progress.steady = True
            return True
        return self._warm


def run_phases(
    steps: Iterator[StepTime], plan: PhasePlan, progress: PhaseProgress, question: Question | None = None,
    others: Others | None = None,
) -> Iterator[tuple[str, StepTime]]:  # fmt: skip
    """Label each step as :class:`Phases` does; stop when the timed phase is complete or the steps end."""
    phases = Phases(plan, progress, question, others)
    for step in steps:
        yield phases.push(step), step
        if phases.complete:
            return


def _agree(before: list[float], now: list[float], most: float) -> bool:
    """Whether two windows have the same rate, by the times (s) between deliveries of all workers in each.

    Args:
        most: share by which they may differ where chance explains it.
    """
    means = fmean(before), fmean(now)
    by_chance = 0.0
    if min(len(before), len(now)) >= _STEADY_DELIVERIES:
        by_chance = Z95 * math.sqrt(sum(variance(window) / len(window) for window in (before, now))) / means[0]
    return abs(means[1] / means[0] - 1) < max(STEADY_TOLERANCE, min(by_chance, most))


def _tells(window_s: float, batches: int, plan: PhasePlan) -> bool:
    """Whether a warm-up window is long enough to be compared."""
    enough = batches >= max(plan.window_batches, _WARMUP_BATCHES_PER_WORKER * plan.unit)
    return window_s >= WARMUP_WINDOW_S or (enough and window_s >= WARMUP_LEAST_S)


def answered(question: Question, timed: list[StepTime], began_ns: int, progress: PhaseProgress) -> bool:
    """Whether more steps would not change the answer (see the module's docstring)."""
    window_batches, parts = progress.window_batches, progress.epoch_windows
    durations = window_durations(timed, began_ns, window_batches)
    samples = sum(step.samples for step in timed[: round(len(durations) * window_batches)])
    noise = question.run_noise
    if question.device_noise is not None:
        seconds = (timed[-1].t_end_ns - began_ns) / 1e9
        full = question.full_samples_per_s
        lost_frac = 1.0 if full is None else max(0.0, 1 - sum(step.samples for step in timed) / seconds / full)
        # Ranks wait for each other without a loader, too, where accelerators differ.
        others_frac = min(lost_frac, sum(step.others_s for step in timed) / seconds)
        idle_frac = min(1.0, sum(step.idle_s for step in timed) / seconds + others_frac)
        alone = question.alone_samples_per_s
        slower = None if alone is None else step_slower_frac(timed, alone)
        noise = noise_of_run(question.run_noise, question.device_noise, idle_frac, slower)
    _, low, high = rate_interval(durations, samples / len(durations), noise, ended_early=True, parts=parts)
    if all(not low < level <= high for level in question.levels) and question.levels:
        return True
    return within_interval(durations, parts) <= SMALL_SHARE * Z95 * noise


class _WarmUp:
    """Finds the step at which the backlog is used up and two windows agree."""

    def __init__(self, plan: PhasePlan, progress: PhaseProgress) -> None:
        self._plan, self._progress = plan, progress
        self._began_ns: int | None = None
        self._ends_ns: list[int] = []
        self._batches = 0
        self._before: list[float] = []
        self._waited_s = 0.0

    def ends_with(self, step: StepTime) -> bool:
        """Whether this step is the last one of the warm-up."""
        plan, progress = self._plan, self._progress
        progress.warmup_batches += 1
        if self._began_ns is None:
            self._began_ns = step.t_end_ns
        else:
            self._waited_s += step.data_wait_s + step.others_s
        if progress.warmup_batches <= plan.backlog:
            self._ends_ns = [step.t_end_ns]
        else:
            self._batches += 1
            if self._batches % plan.unit == 0:
                self._ends_ns.append(step.t_end_ns)
                if _tells((self._ends_ns[-1] - self._ends_ns[0]) / 1e9, self._batches, plan):
                    now = [(end - start) / 1e9 for start, end in pairwise(self._ends_ns)]
                    progress.steady = bool(self._before) and _agree(self._before, now, plan.by_chance)
                    self._before, self._ends_ns, self._batches = now, self._ends_ns[-1:], 0
        elapsed_s = (step.t_end_ns - self._began_ns) / 1e9
        # Of steps as slow as these, the limit would not drain the backlog of two workers either.
        slow = plan.ends_when_fed and progress.warmup_batches <= _SLOW_STEPS and elapsed_s >= plan.seconds
        if slow and self._waited_s <= FED_WAIT_FRAC * elapsed_s:
            return True
        return progress.steady or elapsed_s >= plan.warmup_limit_s
