"""Which candidate a sweep measures next, within its time budget. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING

from pipetune import search
from pipetune.records.sweep import Outcome
from pipetune.search import Proposal

if TYPE_CHECKING:
    from pipetune.sweeping.loop import Plan


def next_proposal(plan: Plan, outcomes: Sequence[Outcome], seconds: float) -> Proposal | None:
    """The next candidate; ``None``: the search is done, or its time is over.

    Args:
        outcomes: of candidates so far.
        seconds: that the sweep has taken so far.
    """
    if is_out_of_time(plan, outcomes, seconds):
        # No gain can be stated without the untuned default, so it is measured even after the budget is spent.
        untuned = search.baseline(plan.space)
        if any(outcome.candidate == untuned for outcome in outcomes):
            return None
        return Proposal(candidate=untuned, why=f"{search.untuned_name(plan.space)}, which gains are stated against")
    return search.propose(plan.present_space, outcomes, plan.goal, plan.seed, grid=plan.grid, blocks=plan.blocks)


def is_out_of_time(plan: Plan, outcomes: Sequence[Outcome], seconds: float) -> bool:
    """Another candidate, as long as the median one, would overrun the budget; ``seconds``: spent so far."""
    if plan.budget_s is None:
        return False
    next_one = median(outcome.wall_s for outcome in outcomes) if outcomes else 0.0
    return seconds + next_one > plan.budget_s
