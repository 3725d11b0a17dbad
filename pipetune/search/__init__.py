"""Which candidate to measure next, and which one to recommend. Pure: outcomes in, a proposal out; called by sweeping.

The steps, a file each: ``probes`` measures one worker of each backend and tunes the settings on the fastest;
``next_step`` finds each backend's smallest sufficient worker count; ``refine`` tries what is near the best candidate;
``blocks`` measures what is undecided side by side. ``pooled`` combines all outcomes so far, ``costs`` is what a
candidate costs, ``choice`` the best candidate with its ``ties`` and ``uncertainties``, ``proof`` whether it is proven
to be worth an edit, ``recommend`` what is recommended then, ``left_out`` why the others were not measured. There is no
state: the same outcomes lead to the same proposal, so an interrupted sweep can be resumed.

Why no general optimiser: a user waits for each of a few dozen measurements, the rate grows with workers up to a knee,
and a model that needs a dozen points to begin with has measured half the grid by then.
``benchmarks/search/search_regret.py`` compares one with it. Figures beside "without it" in this package are of that
benchmark with the rule switched off, on 80 machines on paper and the seven measured grids, replayed 5 times: the
share of cases in which the recommendation is sufficient with no more cores than the cheapest candidate (94 % on paper,
97 % of the grids), and the 95th percentile of regret.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipetune.candidates.space import Space
from pipetune.records.sweep import Candidate, Goal, Outcome
from pipetune.search.blocks import has_own_start, last_round, limit_of, next_block, unconfirmed, unfinished_block
from pipetune.search.choice import Choice, choose, includes_baseline
from pipetune.search.effort import EFFORTS, cores_decide, enough, is_thorough
from pipetune.search.left_out import LeftOut, left_out
from pipetune.search.next_step import max_candidates, next_of_grid, next_step
from pipetune.search.pooled import achieved, baseline, is_clearly_sufficient, latest, meets, pool, untuned_name
from pipetune.search.recommend import Recommendation, recommend
from pipetune.search.state import State
from pipetune.search.tuning import lead_of, tune, untried_of

__all__ = [
    "Choice",
    "LeftOut",
    "Proposal",
    "Recommendation",
    "achieved",
    "baseline",
    "choose",
    "cores_decide",
    "ended_because",
    "has_own_start",
    "includes_baseline",
    "is_clearly_sufficient",
    "is_confirmed",
    "is_exhausted",
    "last_round",
    "latest",
    "left_out",
    "max_candidates",
    "meets",
    "pool",
    "propose",
    "recommend",
    "untuned_name",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What to measure next."""

    candidate: Candidate
    why: str
    """The reason, for a person."""
    block: int = 0
    """See :class:`pipetune.records.sweep.Outcome`."""


def propose(
    space: Space,
    outcomes: Sequence[Outcome],
    goal: Goal,
    seed: int,
    *,
    grid: bool = False,
    blocks: int | None = None,
    turns: bool = True,
    looks: bool = True,
) -> Proposal | None:
    """The candidate to measure next; ``None`` when the search is done.

    Args:
        outcomes: of this sweep so far, in the order in which they were measured.
        seed: of random orders.
        grid: measure every candidate, in random order.
        blocks: maximum number of blocks in which the best candidates are compared side by side; ``None``: as many as
            the goal's effort has.
        turns: there is time for candidates to take turns in the user's running script.
        looks: there is time for candidates that were not measured yet.
    """
    block = unfinished_block(space, outcomes, goal, seed)
    if block is None:
        if grid:
            step = next_of_grid(space, latest(outcomes), seed)
        else:
            over = not looks or _over(space, outcomes, goal)
            step = None if over else next_step(State.after(space, goal, outcomes), seed)
        if step is not None:
            return Proposal(candidate=step[0], why=step[1])
        limit = limit_of(space, outcomes, goal) if blocks is None else blocks
        block = next_block(space, outcomes, goal, seed, limit, turns=turns)
    if block is None:
        return None
    return Proposal(candidate=block[0], why="side by side with its rivals, because it is undecided", block=block[1])


def _over(space: Space, outcomes: Sequence[Outcome], goal: Goal) -> str | None:
    """Why nothing is measured for the first time any more, though the search would go on; ``None``: it may.

    Once the best were compared side by side, because a block may change which setting seems to gain, and another round
    of probes would gain little; and after :attr:`pipetune.search.effort.Effort.most` measurements.
    """
    if is_thorough(goal):
        return None
    searching = _searching(outcomes, goal)
    most = EFFORTS[goal.effort].most
    if goal.settled_blocks:  # as many again as there were
        most += sum(outcome.block > 0 for outcome in searching) + most
    if len(searching) >= most:
        return f"{len(searching)} measurements were made, more than --effort {goal.effort} has"
    if len(searching) == len(outcomes):
        return None
    return "the best were compared side by side"


def _searching(outcomes: Sequence[Outcome], goal: Goal) -> list[Outcome]:
    """What was measured before the best were compared side by side, or before what a resumed sweep had settled."""
    return [outcome for outcome in outcomes if outcome.block <= goal.settled_blocks]


def is_exhausted(space: Space, outcomes: Sequence[Outcome], goal: Goal, *, grid: bool = False) -> bool:
    """Whether there is no candidate left that the search would measure for the first time."""
    # The seed changes nothing but the order.
    if grid:
        return next_of_grid(space, latest(outcomes), seed=0) is None
    return bool(_over(space, outcomes, goal)) or next_step(State.after(space, goal, outcomes), seed=0) is None


def ended_because(space: Space, outcomes: Sequence[Outcome], goal: Goal, *, met: bool = True) -> str | None:
    """Why a search that has ended would go on with more effort, in words; ``None``: it was thorough.

    Args:
        met: what is recommended reaches the target.
    """
    if is_thorough(goal):
        return None
    # As it was before the best were compared: a block may leave undecided what the search ended with.
    state = State.after(space, goal, _searching(outcomes, goal))
    lead = lead_of(state)
    chosen = {} if lead is None else tune(state, lead)[0]
    why = enough(state, lead, chosen, untried_of(state, lead))
    if why is not None and not met:
        return "a candidate seemed to suffice"
    return (
        why
        or _over(space, outcomes, goal)
        or "decoders that usually take more CPU time than those that were measured were not tried"
    )


def is_confirmed(space: Space, outcomes: Sequence[Outcome], goal: Goal) -> bool:
    """Whether the recommended candidate was measured side by side with its rivals and the default, or is the default.

    One that was in no block is not confirmed, even if others were in one.
    """
    if unconfirmed(space, outcomes, goal) is not None:
        return False
    return next_block(space, outcomes, goal, 0, 1) is None and unfinished_block(space, outcomes, goal, 0) is None
