"""A sweep of a script that has to be started for each measurement ends within three set-ups and a minute."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pipetune.records.sweep import Outcome
from pipetune.search.blocks import last_round
from pipetune.sweeping.next_proposal import USUAL_S, SoFar, needs_ceiling, next_proposal
from pipetune.sweeping.sweep_plan import Plan
from tests.unit.search.test_proof import GOAL, OTHER, OWN, SPACE, look, side_by_side
from tests.unit.sweeping.bench import PLAN, REAL

#: The space has a third candidate, which was not looked at.
SCRIPT = replace(PLAN, space=SPACE, goal=GOAL, in_script=True, new_start_s=2.0)


def started(outcomes: list[Outcome], wall_s: float = 8.0) -> list[Outcome]:
    """Each was measured in starts of its own."""
    return [replace(outcome, forked=False, wall_s=wall_s) for outcome in outcomes]


def proposed(plan: Plan, outcomes: list[Outcome], seconds: float) -> Any:
    return next_proposal(plan, SoFar(candidates=outcomes, ceilings=(), seconds=seconds))


#: The other candidate is much faster, and was measured only once.
GAIN = started(side_by_side((200.0, 500.0), blocks=0))


def test_a_look_that_leaves_no_time_to_confirm_gives_way_to_the_confirmation() -> None:
    early = proposed(SCRIPT, GAIN, 20.0)
    assert early is not None
    assert early.block == 0
    assert early.candidate not in (OWN, OTHER)
    late = proposed(SCRIPT, GAIN, 50.0)
    assert late is not None
    assert late.block > last_round(SPACE, GOAL)
    assert late.candidate in (OWN, OTHER)


@pytest.mark.parametrize("change", [{"budget_s": 1000.0}, {"goal": replace(GOAL, effort="thorough")}])
def test_a_budget_or_a_thorough_search_takes_the_time_it_needs(change: dict[str, Any]) -> None:
    proposal = proposed(replace(SCRIPT, **change), GAIN, 50.0)
    assert proposal is not None
    assert proposal.block == 0


def test_another_candidate_is_measured_however_long_the_script_takes() -> None:
    proposal = proposed(SCRIPT, started([look(OWN, 200.0)], wall_s=50.0), 100.0)
    assert proposal is not None
    assert proposal.block == 0
    assert proposal.candidate != OWN


def test_the_first_confirmation_is_made_and_no_other_begins_late() -> None:
    first = proposed(SCRIPT, GAIN, 10 * USUAL_S)
    assert first is not None
    assert first.block == last_round(SPACE, GOAL) + 1
    noisy = started([*side_by_side((400.0, 500.0), half=0.3, blocks=0)])
    block = last_round(SPACE, GOAL) + 1
    noisy += started([look(OWN, 400.0, 0.3, block), look(OTHER, 500.0, 0.3, block)])
    assert proposed(SCRIPT, noisy, 10 * USUAL_S) is None


def test_the_ceiling_is_not_measured_again_where_that_takes_starts_of_its_own() -> None:
    ceiling = replace(look(OWN, 1000.0), role="ceiling")
    workload = replace(PLAN.conditions.workload, accelerator=REAL)
    plan = replace(SCRIPT, conditions=replace(PLAN.conditions, workload=workload))
    block = last_round(SPACE, GOAL) + 1
    for forked in (True, False):
        ceilings = [replace(ceiling, forked=forked)]
        so_far = SoFar(candidates=side_by_side((200.0, 500.0), blocks=0), ceilings=ceilings, seconds=1.0)
        assert needs_ceiling(plan, block, so_far) is forked


@pytest.mark.parametrize(("wall_s", "again"), [(4.0, True), (14.0, False)])
def test_a_ceiling_that_takes_long_is_not_measured_again_before_the_confirmation(wall_s: float, again: bool) -> None:
    workload = replace(PLAN.conditions.workload, accelerator=REAL)
    plan = replace(SCRIPT, conditions=replace(PLAN.conditions, workload=workload))
    ceilings = [replace(look(OWN, 1000.0), role="ceiling", wall_s=wall_s, forked=True)]
    so_far = SoFar(candidates=side_by_side((200.0, 500.0), blocks=0), ceilings=ceilings, seconds=1.0)
    assert needs_ceiling(plan, last_round(SPACE, GOAL) + 1, so_far) is again
