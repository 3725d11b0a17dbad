"""Which candidate to measure next, and which one to recommend. Pure: outcomes in, a proposal out.

``probes``, ``steps`` and ``refine`` look for the cheapest sufficient candidate in a small part of the grid; ``blocks``
decides what is left in doubt by measuring the best ones side by side; ``choice`` says which to recommend, with its ties
and doubts; ``left_out`` why the others were not measured; ``known`` what all outcomes so far come to. No state: from
the same outcomes follows the same proposal, so an interrupted sweep goes on where it stopped.

Why no general optimiser: a user waits for each of a few dozen measurements, the response to workers is monotone up to a
knee, and a model that needs a dozen points to begin with has measured half the grid by then.
``benchmarks/search/search_regret.py`` puts one beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipetune.candidates.space import Space
from pipetune.records.sweep import Candidate, Goal, Outcome
from pipetune.search.blocks import MOST_BLOCKS, next_block, unfinished_block
from pipetune.search.choice import Choice, choose
from pipetune.search.left_out import LeftOut, left_out
from pipetune.search.next_step import most_candidates, next_of_grid, next_step
from pipetune.search.pooled import achieved, baseline, known, latest, meets
from pipetune.search.probes import Seen

__all__ = [
    "Choice", "LeftOut", "Proposal", "achieved", "baseline", "choose", "is_confirmed", "is_exhausted", "known",
    "latest", "left_out", "meets", "most_candidates", "propose",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What to measure next."""

    candidate: Candidate
    why: str
    block: int = 0
    """See :class:`pipetune.records.sweep.Outcome`."""


def propose(
    space: Space, outcomes: Sequence[Outcome], goal: Goal, seed: int, *, grid: bool = False, blocks: int = MOST_BLOCKS
) -> Proposal | None:
    """The candidate to measure next; ``None`` when the search is done.

    Args:
        outcomes: of this sweep so far, in the order in which they were measured.
        grid: measure everything, in random order.
        blocks: compare the best ones side by side so often at most.
    """
    block = unfinished_block(space, outcomes, goal, seed)
    if block is None:
        if grid:
            step = next_of_grid(space, latest(outcomes), seed)
        else:
            step = next_step(Seen(space, goal, known(outcomes, goal)), seed)
        if step is not None:
            return Proposal(candidate=step[0], why=step[1])
        block = next_block(space, outcomes, goal, seed, blocks)
    if block is None:
        return None
    return Proposal(candidate=block[0], why="beside its rivals, to decide what is in doubt", block=block[1])


def is_exhausted(space: Space, outcomes: Sequence[Outcome], goal: Goal, *, grid: bool = False) -> bool:
    """Nothing is left that the search would measure for the first time."""
    # The seed decides the order alone.
    if grid:
        return next_of_grid(space, latest(outcomes), seed=0) is None
    return next_step(Seen(space, goal, known(outcomes, goal)), seed=0) is None


def is_confirmed(space: Space, outcomes: Sequence[Outcome], goal: Goal) -> bool:
    """The best one was measured beside its rivals and the default, unless it is the default itself."""
    return next_block(space, outcomes, goal, 0, 1) is None and unfinished_block(space, outcomes, goal, 0) is None
