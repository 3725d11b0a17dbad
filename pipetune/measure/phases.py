"""When the warm-up is over and the timed phase is long enough. Pure: steps in, labelled steps out.

Why not a fixed number of batches: prefetching builds up a backlog of workers x depth batches while the first batch is
awaited, and a loop that is starved in the long run lives off it at first. Peers discard 2 to 10 batches; with 16
workers and a depth of 2 the backlog alone is 32.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pipetune.records import StepTime

#: Two successive warm-up windows agree when their rates differ by less than this share.
STEADY_TOLERANCE = 0.05
#: A warm-up window lasts at least this long; shorter ones compare noise.
WARMUP_WINDOW_S = 0.4
#: Windows that the timed phase is divided into (up to 23 where the batches do not divide evenly), how many it waits
#: for, and the fewest that an interval is computed from (three: two degrees of freedom).
TARGET_WINDOWS = 12
MIN_WINDOWS = 6
FEWEST_WINDOWS = 3
#: The timed phase runs over its length by up to this factor for MIN_WINDOWS, as long as it takes for FEWEST_WINDOWS.
OVERTIME = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How one candidate is to be timed."""

    unit: int
    """Windows are multiples of this many batches: the worker count, because workers deliver in bursts of one each."""
    backlog: int
    """Batches to discard at least: twice what prefetching may have stored up."""
    seconds: float
    warmup_limit_s: float


@dataclass(slots=True, kw_only=True)
class Progress:
    """What became known while the phases ran."""

    warmup_batches: int = 0
    steady: bool = False
    window_batches: int = 0


def plan(num_workers: int, prefetch_depth: int, seconds: float, warmup_limit_s: float) -> Plan:
    """The plan for a loader with so many workers and batches in store per worker."""
    unit = max(1, num_workers)
    return Plan(unit=unit, backlog=max(2, 2 * unit * prefetch_depth), seconds=seconds, warmup_limit_s=warmup_limit_s)


def run_phases(steps: Iterator[StepTime], plan: Plan, progress: Progress) -> Iterator[tuple[str, StepTime]]:
    """Label each step ``warmup`` or ``timed``; stop when the timed phase is complete or the steps end.

    The first step is always warm-up: it holds the wait for the first batch. ``progress`` is filled in on the way.
    """
    for step in _warm_up(steps, plan, progress):
        yield "warmup", step
        last = step
    if progress.warmup_batches == 0:
        return
    began_ns = last.t_end_ns
    for count, step in enumerate(steps, start=1):
        units, rest = divmod(count, plan.unit)
        # How many windows there are is decided last: an estimate made during the warm-up, from batches that had been
        # prefetched, can be wrong by any factor.
        progress.window_batches = plan.unit * max(1, units // TARGET_WINDOWS)
        yield "timed", step
        elapsed = (step.t_end_ns - began_ns) / 1e9
        if (
            rest == 0
            and elapsed >= plan.seconds
            and (units >= MIN_WINDOWS or (units >= FEWEST_WINDOWS and elapsed >= OVERTIME * plan.seconds))
        ):
            return


def _warm_up(steps: Iterator[StepTime], plan: Plan, progress: Progress) -> Iterator[StepTime]:
    """Steps until the backlog is drained and two windows agree."""
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
