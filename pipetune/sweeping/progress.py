"""How far a running sweep has come: the best candidate so far, and about how long it will still take. Pure.

The search is a function of the outcomes, so the time left is found by playing it on: each candidate that it proposes
gets the outcome that the nearest measured one makes likely, until the search ends. That takes about 10 ms per
candidate, between two measurements; it is given up after :data:`LOOK_AHEAD_S`, and what was found is a lower bound.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from pipetune import search
from pipetune.candidates.space import Space
from pipetune.records.sweep import Candidate, Goal, Measurement, Outcome
from pipetune.registry import find_backend
from pipetune.stats.ceilings import restate
from pipetune.sweeping.expected_time import expected_times_s
from pipetune.sweeping.sweep_plan import Plan

#: Time that may be spent on looking ahead after each outcome (s).
LOOK_AHEAD_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLeft:
    """Until a sweep ends, as far as can be said."""

    seconds: float
    at_least: bool
    """It is a lower bound: the end was not in sight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a sweep has come."""

    best: Outcome | None
    """The candidate that would be recommended now; ``None``: nothing was measured yet."""
    suffices: bool
    """It reaches the target."""
    default_suffices: bool
    """PyTorch's default, or the user's own loader as it is, reaches the target beyond doubt."""
    only_savings: bool
    """The default suffices and may be recommended, so that other candidates are measured for what they may save."""
    left: TimeLeft | None
    """``None``: not known."""


def find_progress(plan: Plan, outcomes: Sequence[Outcome]) -> Progress:
    """How far the sweep of a plan has come after these outcomes, the ceilings among them."""
    space, goal, start_s = plan.present_space, plan.goal, plan.new_start_s
    return progress(space, restate(outcomes), goal, plan.seed, grid=plan.grid, blocks=plan.blocks, new_start_s=start_s)


def progress(
    space: Space, outcomes: Sequence[Outcome], goal: Goal, seed: int, *, grid: bool = False, blocks: int | None = None,
    new_start_s: float | None = None, clock: Callable[[], float] = time.monotonic,
) -> Progress:  # fmt: skip
    """After these outcomes, the ceilings among them; the other arguments are those of the search.

    Args:
        new_start_s: as for :func:`pipetune.sweeping.expected_time.expected_times_s`.
    """
    candidates = [outcome for outcome in outcomes if outcome.role != "ceiling"]
    choice = search.choose(candidates, goal, space)
    best = None if choice is None else choice.outcome
    untuned = search.latest(candidates).get(search.baseline(space).key)
    default_suffices = (
        untuned is not None
        and untuned.measurement is not None
        and search.is_clearly_sufficient(untuned.measurement, goal, space)
    )
    return Progress(
        best=best, suffices=_suffices(best, goal), default_suffices=default_suffices,
        only_savings=default_suffices and not grid and search.includes_baseline(space),
        left=time_left(space, outcomes, goal, seed, grid=grid, blocks=blocks, new_start_s=new_start_s,
                       clock=clock),
    )  # fmt: skip


def _suffices(outcome: Outcome | None, goal: Goal) -> bool:
    return outcome is not None and outcome.measurement is not None and search.meets(outcome.measurement, goal)


def time_left(
    space: Space, outcomes: Sequence[Outcome], goal: Goal, seed: int, *, grid: bool = False, blocks: int | None = None,
    new_start_s: float | None = None, clock: Callable[[], float] = time.monotonic,
) -> TimeLeft | None:  # fmt: skip
    """How long the search will still take; ``None``: no candidate was measured yet, from which it could be seen."""
    played = [outcome for outcome in outcomes if outcome.role != "ceiling"]
    if not any(outcome.measurement for outcome in played):
        return None
    usual_s = {
        forked: fmean(expected_times_s(outcomes, forked=forked, new_start_s=new_start_s)) for forked in (True, False)
    }
    end = clock() + LOOK_AHEAD_S
    seconds = 0.0
    while (proposal := search.propose(space, played, goal, seed, grid=grid, blocks=blocks)) is not None:
        if clock() > end:
            return TimeLeft(seconds=seconds, at_least=True)
        seconds += usual_s[not search.has_own_start(space, played, goal, proposal.candidate, proposal.block)]
        likely = likely_outcome(proposal.candidate, played, space)
        role = "baseline" if proposal.candidate == search.baseline(space) else "candidate"
        played.append(replace(likely, block=proposal.block, role=role))
    return TimeLeft(seconds=seconds, at_least=False)


def likely_outcome(candidate: Candidate, outcomes: Sequence[Outcome], space: Space) -> Outcome:
    """What measuring a candidate would probably give, from the measured one that is nearest to it.

    Its decoder takes the CPU time per image that it usually does beside the other one, each worker does as much as
    there, and no more cores are used than there are.
    """
    measured = [(outcome, outcome.measurement) for outcome in outcomes if outcome.measurement is not None]
    nearest, m = min(measured, key=lambda pair: _distance(pair[0].candidate, candidate))
    if nearest.candidate == candidate:
        return nearest
    ratio = find_backend(candidate.backend).usual_cost / find_backend(nearest.candidate.backend).usual_cost
    workers = max(1, candidate.num_workers) / max(1, nearest.candidate.num_workers)
    rate = m.samples_per_s / ratio * workers
    cost = None if m.cpu_s_per_1000_samples is None else m.cpu_s_per_1000_samples * ratio
    if cost and space.usable_cores:
        rate = min(rate, 1000 * space.usable_cores / cost)
    ceiling = m.full_samples_per_s or rate
    return replace(nearest, candidate=candidate, attempt=1, failure=None, measurement=_at(m, min(rate, ceiling), cost))


def _distance(one: Candidate, other: Candidate) -> tuple[bool, int, float]:
    settings = sum(
        getattr(one, name) != getattr(other, name)
        for name in one.__slots__
        if name not in ("backend", "num_workers", "batch_size")
    )
    return one.backend != other.backend, settings, abs(one.num_workers - other.num_workers)


def _at(m: Measurement, rate: float, cost: float | None) -> Measurement:
    """The measurement at another rate and CPU time per image."""
    factor = rate / m.samples_per_s

    def scaled(interval: tuple[float, float] | None) -> tuple[float, float] | None:
        return None if interval is None else (factor * interval[0], factor * interval[1])

    return replace(
        m, samples_per_s=rate, ci95=(factor * m.ci95[0], factor * m.ci95[1]),
        goodput=None if m.goodput is None else min(1.0, factor * m.goodput), goodput_ci95=scaled(m.goodput_ci95),
        gpu_util_pct=None if m.gpu_util_pct is None else min(100.0, factor * m.gpu_util_pct),
        gpu_util_ci95=scaled(m.gpu_util_ci95), cpu_s_per_1000_samples=cost,
        cores_used=m.cores_used if cost is None else rate * cost / 1000,
    )  # fmt: skip
