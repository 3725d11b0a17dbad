"""Candidates take turns in a script that runs only while the sweep has not taken long."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune.search.blocks import last_round
from pipetune.sweeping.next_proposal import MAX_TURNS_BEGIN_S, SoFar, next_proposal
from tests.unit.search.test_proof import GOAL, SPACE, side_by_side
from tests.unit.sweeping.bench import PLAN


@pytest.mark.parametrize(
    ("seconds", "effort", "takes_turns"),
    [(10.0, "normal", True), (MAX_TURNS_BEGIN_S, "normal", False), (10 * MAX_TURNS_BEGIN_S, "thorough", True)],
)
def test_no_turn_begins_late(seconds: float, effort: str, takes_turns: bool) -> None:
    goal = replace(GOAL, effort=effort)
    plan = replace(PLAN, space=replace(SPACE, workers=(2, 4)), goal=goal, grid=True, blocks=1, in_script=True)
    doubtful = side_by_side((400.0, 490.0), half=0.09, blocks=0)
    proposal = next_proposal(plan, SoFar(candidates=doubtful, ceilings=(), seconds=seconds))
    assert proposal is not None
    assert (proposal.block <= last_round(plan.space, goal)) is takes_turns
