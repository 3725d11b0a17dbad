"""The loop of a sweep: propose -> measure -> save -> yield. No torch, no printing.

Its only state is the list of outcomes, which the run folder holds as well.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

from pipetune import search
from pipetune.errors import PipetuneError, UsageError
from pipetune.measure.harness import Live, Setting, measure
from pipetune.measure.machine_speed import DRIFT_LIMIT, relative_change
from pipetune.measure.noise import OFF_USUAL_LIMIT, off_usual_speed, run_noise
from pipetune.measure.summary import Recording
from pipetune.records import Candidate, Goal, Outcome
from pipetune.search import Space

#: The ceiling of an emulated accelerator is known beforehand; it is measured only to check the bench itself.
_EMULATED_CEILING_S = 1.5
#: Below this idle share the loader had no part in the rate.
_FED = 0.01
#: A drifted candidate is measured this often before it is believed.
_ATTEMPTS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to sweep and how."""

    space: Space
    goal: Goal
    setting: Setting
    seed: int
    budget_s: float | None = None
    """For the whole sweep, the ceiling included; ``None``: until the search is done."""
    grid: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something to show while the sweep runs."""

    candidate: Candidate
    role: str
    attempt: int
    live: Live


#: Called with each outcome and its recording before the outcome is yielded; must have them on disk when it returns.
Save = Callable[[Outcome, Recording], None]


def sweep(plan: Plan, save: Save, on_event: Callable[[Event], None]) -> Iterator[Outcome]:
    """Measure the ceiling, then one candidate after the other until the search is done or the budget is spent.

    Raises:
        PipetuneError: the ceiling could not be measured; without it no share of it can be stated.
    """
    began = time.monotonic()
    ceiling = _measure_ceiling(plan, save, on_event)
    yield ceiling
    assert ceiling.measurement is not None  # _measure_ceiling raises otherwise
    outcomes: list[Outcome] = []
    while (candidate := _next(plan, outcomes, began)) is not None:
        role = "baseline" if candidate == search.baseline(plan.space) else "candidate"
        for attempt in range(1, _ATTEMPTS + 1):
            outcome = _measure(plan, candidate, role, attempt, [ceiling, *outcomes], save, on_event)
            outcomes.append(outcome)
            yield outcome
            if not drifted(outcomes) or _out_of_time(plan, outcomes, began):
                break


def _measure_ceiling(plan: Plan, save: Save, on_event: Callable[[Event], None]) -> Outcome:
    workload = plan.setting.workload
    if workload.accelerator.kind == "emulated":
        workload = replace(workload, seconds=min(workload.seconds, _EMULATED_CEILING_S))
    plan = replace(plan, setting=replace(plan.setting, workload=workload))
    for attempt in range(1, _ATTEMPTS + 1):
        outcome = _measure(plan, search.baseline(plan.space), "ceiling", attempt, [], save, on_event)
        # Everything is measured against it: worth a second look when the first was not steady.
        if outcome.measurement is None or outcome.measurement.steady:
            break
    if outcome.failure is not None:
        failure = outcome.failure
        kind = UsageError if failure.kind == "usage" else PipetuneError
        raise kind(
            f"cannot measure what {workload.accelerator.name} takes at most: {failure.message}", hint=failure.hint
        )
    return outcome


def _measure(
    plan: Plan, candidate: Candidate, role: str, attempt: int, before: Sequence[Outcome], save: Save,
    on_event: Callable[[Event], None],
) -> Outcome:  # fmt: skip
    ceiling = before[0].measurement if before else None
    outcome, recording = measure(
        candidate, role, plan.setting, attempt=attempt,
        ceiling_samples_per_s=ceiling.samples_per_s if ceiling else None,
        run_noise=run_noise(outcome.measurement for outcome in before),
        on_live=lambda live: on_event(Event(candidate=candidate, role=role, attempt=attempt, live=live)),
    )  # fmt: skip
    save(outcome, recording)
    return outcome


def _next(plan: Plan, outcomes: Sequence[Outcome], began: float) -> Candidate | None:
    if _out_of_time(plan, outcomes, began):
        # Without the untuned default there is no gain to state, so it is measured even when the time is over.
        untuned = search.baseline(plan.space)
        return None if any(outcome.candidate == untuned for outcome in outcomes) else untuned
    if plan.grid:
        return search.next_of_grid(plan.space, outcomes, plan.seed)
    return search.next_candidate(plan.space, outcomes, plan.goal, plan.seed)


def _out_of_time(plan: Plan, outcomes: Sequence[Outcome], began: float) -> bool:
    """Another candidate, as long as the usual one, would overrun the budget."""
    if plan.budget_s is None:
        return False
    usual = median(outcome.wall_s for outcome in outcomes) if outcomes else 0.0
    return time.monotonic() - began + usual > plan.budget_s


def drifted(outcomes: Sequence[Outcome]) -> bool:
    """The machine ran at another speed during the last outcome than before, after, or in the rest of the sweep."""
    last = outcomes[-1].measurement
    if last is None:
        return False
    if last.accelerator_idle_frac < _FED:
        return False  # the accelerator set the pace: a slower machine was still fast enough
    if abs(relative_change(last.machine_speed_before, last.machine_speed_after)) > DRIFT_LIMIT:
        return True
    return abs(off_usual_speed(last, [outcome.measurement for outcome in outcomes])) > OFF_USUAL_LIMIT
