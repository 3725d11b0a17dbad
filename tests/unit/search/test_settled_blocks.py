"""A search that goes on with other options than those that its blocks were measured for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune import search
from pipetune.candidates.space import Space
from pipetune.records.sweep import Goal, Outcome
from tests.unit.search.test_effort import NORMAL, SPACE, THOROUGHLY, measured

FEW = replace(SPACE, workers=(0, 1), backends=("pillow", "opencv"))
MORE = replace(SPACE, workers=(0, 1, 2, 4), backends=("pillow", "opencv"))


def go_on(space: Space, goal: Goal, known: list[Outcome]) -> list[Outcome]:
    """What is measured after what is known, until the search ends."""
    outcomes = list(known)
    while (proposal := search.propose(space, outcomes, goal, 0)) is not None:
        outcomes.append(replace(measured(proposal.candidate, 1000.0), block=proposal.block))
        assert len(outcomes) < 60
    return outcomes[len(known) :]


@pytest.mark.parametrize("goal", [NORMAL, THOROUGHLY])
def test_with_more_workers_granted_they_are_tried_and_compared_in_a_block_of_their_own(goal: Goal) -> None:
    known = go_on(FEW, goal, [])
    last = max(outcome.block for outcome in known)
    assert last >= 1
    assert go_on(FEW, goal, known) == []
    settled = replace(goal, settled_blocks=last)

    added = go_on(MORE, settled, known)

    assert max(outcome.candidate.num_workers for outcome in added) > 1
    assert added[0].block == 0
    blocks = [outcome.block for outcome in added if outcome.block]
    assert blocks[0] == last + 1
    choice = search.choose([*known, *added], settled, MORE)
    assert choice is not None
    assert choice.outcome.candidate.num_workers > 1
    compared = {outcome.candidate.key for outcome in added if outcome.block == last + 1}
    assert {choice.outcome.candidate.key, search.baseline(MORE).key} <= compared
    assert search.is_confirmed(MORE, [*known, *added], settled)
    assert search.has_own_start(MORE, known, settled, choice.outcome.candidate, last + 1)


def test_an_unfinished_block_of_other_options_is_not_gone_on_with() -> None:
    known = go_on(MORE, NORMAL, [])
    first = next(number for number, outcome in enumerate(known) if outcome.block)
    cut = known[: first + 1]
    one = replace(MORE, workers=(0, 1))

    added = go_on(one, replace(NORMAL, settled_blocks=1), cut)

    assert added
    assert {outcome.block for outcome in added} & {1} == set()
    assert all(outcome.candidate.num_workers <= 1 for outcome in added)
    choice = search.choose([*cut, *added], NORMAL, one)
    assert choice is not None
    assert choice.outcome.candidate.num_workers <= 1
