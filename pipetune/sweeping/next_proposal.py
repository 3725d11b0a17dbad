"""Which candidate a sweep measures next, within its time budget. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from pipetune import search
from pipetune.records.sweep import Candidate, Outcome
from pipetune.search import Proposal
from pipetune.search.effort import is_thorough
from pipetune.stats.ceilings import count_repeats, find_refuting
from pipetune.sweeping.expected_time import expected_times_s
from pipetune.sweeping.sweep_plan import Plan

#: A sweep of a script ends within three set-ups and so many seconds, unless the search is thorough or has a budget.
USUAL_S, USUAL_STARTS = 60.0, 3
#: Unless the search is thorough, candidates begin no further turn in the user's running script after so much of the
#: sweep (s), the set-up not counted, so that :data:`USUAL_S` includes the confirmation.
MAX_TURNS_BEGIN_S = 40.0
#: A script's ceiling that took longer (s) is measured again only where a candidate has refuted it: its steps are slow
#: or unequal, and three of them would take most of :data:`USUAL_S`.
MAX_REPEATED_CEILING_S = 10.0
#: How often a ceiling is measured again in a sweep because candidates were faster, at most.
MAX_REPEATED_CEILINGS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class SoFar:
    """What a running sweep has measured."""

    candidates: Sequence[Outcome]
    """As shares of a ceiling that none of them has refuted (:func:`pipetune.stats.ceilings.restate`)."""
    ceilings: Sequence[Outcome]
    seconds: float
    """Time since it began."""
    in_order: Sequence[Outcome] = ()
    """All outcomes as they were measured, in their order."""


def next_proposal(plan: Plan, so_far: SoFar) -> Proposal | None:
    """The next candidate; ``None``: the search is done, or its time is over."""
    outcomes = so_far.candidates
    turns = is_thorough(plan.goal) or so_far.seconds < MAX_TURNS_BEGIN_S
    proposal = search.propose(
        plan.present_space, outcomes, plan.goal, plan.seed, grid=plan.grid, blocks=plan.blocks, turns=turns
    )
    if proposal is not None and not _is_in_usual_time(plan, proposal, so_far):
        if proposal.block:
            return None
        proposal = search.propose(
            plan.present_space, outcomes, plan.goal, plan.seed, blocks=plan.blocks, turns=turns, looks=False
        )
    if proposal is None or has_time_for(plan, proposal, so_far):
        return proposal
    # No gain can be stated without the untuned default, so it is measured even after the budget is spent.
    untuned = search.baseline(plan.space)
    if any(outcome.candidate == untuned for outcome in outcomes):
        return None
    return Proposal(candidate=untuned, why=f"{search.untuned_name(plan.space)}, which gains are stated against")


def _is_in_usual_time(plan: Plan, proposal: Proposal, so_far: SoFar) -> bool:
    """Whether a proposal leaves time for fresh starts that confirm what it may lead to, in a sweep of usual length.

    The baseline, one other candidate and the first block of fresh starts are always measured.
    """
    if not plan.in_script or plan.budget_s is not None or plan.grid or is_thorough(plan.goal):
        return True
    begun = {outcome.block for outcome in so_far.candidates}
    last = search.last_round(plan.present_space, plan.goal)
    if proposal.block:
        if proposal.block in begun or proposal.block <= last or max(begun, default=0) <= last:
            return True
        starts = 2  # of the candidate and of the script as it is
    elif len({outcome.candidate for outcome in so_far.candidates if outcome.measurement is not None}) < 2:
        return True
    else:
        starts = 3
    start_s = plan.new_start_s or 0.0
    own_start_s = median(expected_times_s(
        [*so_far.ceilings, *so_far.candidates], forked=False, new_start_s=plan.new_start_s
    ))  # fmt: skip
    # The sweep's clock starts after the first set-up.
    return so_far.seconds + starts * own_start_s <= USUAL_S + (USUAL_STARTS - 1) * start_s


def has_time_for(plan: Plan, proposal: Proposal, so_far: SoFar) -> bool:
    """Whether measuring it would not overrun the budget, with its set-up and with the ceiling before its block."""
    if plan.budget_s is None:
        return True
    expected_s = _expected_s(plan, proposal, name_role(plan, proposal.candidate), so_far)
    if needs_ceiling(plan, proposal.block, so_far):
        expected_s += _expected_s(plan, propose_ceiling(plan, proposal.block), "ceiling", so_far)
    return so_far.seconds + expected_s <= plan.budget_s


def _expected_s(plan: Plan, proposal: Proposal, role: str, so_far: SoFar) -> float:
    can_fork = plan.in_script or plan.conditions.servers is not None
    forked = can_fork and not needs_new_process(plan, proposal, role, so_far.candidates)
    seen = [*so_far.ceilings, *so_far.candidates]
    return median(expected_times_s(seen, forked=forked, new_start_s=plan.new_start_s))


def name_role(plan: Plan, candidate: Candidate) -> str:
    """``baseline`` or ``candidate``."""
    return "baseline" if candidate == search.baseline(plan.space) else "candidate"


def propose_ceiling(plan: Plan, block: int) -> Proposal:
    """The ceiling that is measured before the candidates of a block."""
    why = "the ceiling, beside the candidates of a block"
    return Proposal(candidate=search.baseline(plan.space), why=why, block=block)


def propose_repeated_ceiling(plan: Plan, so_far: SoFar) -> Proposal | None:
    """The ceiling once more, where a candidate has refuted it; ``None``: it stands, or there is no time for it.

    Where the candidate ran in a fresh start of the user's script, that has ended, and another start for the ceiling
    alone would be too dear.
    """
    refuting = find_refuting(so_far.in_order)
    if refuting is None or count_repeats(so_far.in_order) >= MAX_REPEATED_CEILINGS:
        return None
    if plan.in_script and not refuting.forked:
        return None
    why = "the ceiling again, because a candidate was faster"
    proposal = Proposal(candidate=search.baseline(plan.space), why=why, block=refuting.block)
    if plan.budget_s is None:
        return proposal
    expected_s = _expected_s(plan, proposal, "ceiling", so_far)
    return proposal if so_far.seconds + expected_s <= plan.budget_s else None


def needs_ceiling(plan: Plan, block: int, so_far: SoFar) -> bool:
    """Whether the ceiling is measured again before a block's next candidate.

    An emulated device whose processes do not scatter is always the same.
    """
    if not block or any(outcome.block == block for outcome in so_far.ceilings):
        return False
    if any(is_dear(plan, outcome) for outcome in so_far.ceilings):
        return False
    begun = any(outcome.block or not outcome.forked for outcome in so_far.ceilings)
    if plan.in_script and (begun or not has_own_start(plan, propose_ceiling(plan, block), so_far.candidates)):
        return False  # once, in the running script: later, or where that ends too soon, it takes a start of its own
    accelerator = plan.conditions.workload.accelerator
    return accelerator.kind != "emulated" or bool(accelerator.scatter)


def is_dear(plan: Plan, ceiling: Outcome) -> bool:
    """Whether a script's ceiling took too long to be measured again without need."""
    return plan.in_script and ceiling.wall_s > MAX_REPEATED_CEILING_S


def has_own_start(plan: Plan, proposal: Proposal, candidates: Sequence[Outcome]) -> bool:
    """Whether a proposal begins as a training does: in a new process, or with a fresh start of the script."""
    return search.has_own_start(plan.present_space, candidates, plan.goal, proposal.candidate, proposal.block)


def needs_new_process(plan: Plan, proposal: Proposal, role: str, candidates: Sequence[Outcome]) -> bool:
    """Whether it gets a process of its own, where others may share one.

    What is decided is confirmed in new processes, which is how a training begins: the default, which may be found to
    suffice at once, and each candidate's first block. A script is such a process itself: it is started anew for its
    blocks.
    """
    own_start = has_own_start(plan, proposal, candidates)
    return own_start and role != "ceiling" if plan.in_script else own_start or role == "baseline"
