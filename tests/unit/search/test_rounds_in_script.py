from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune import search
from pipetune.candidates.space import Space
from pipetune.records.sweep import Candidate, Goal, Measurement, Outcome
from pipetune.search.blocks import next_block
from pipetune.search.effort import EFFORTS
from tests.unit.search import test_blocks as beside
from tests.unit.search.test_blocks import CEILING, DEFAULT, SLOW, SPACE

GOAL = replace(beside.GOAL, effort="thorough")
ROUNDS = EFFORTS["thorough"].rounds_in_script
#: Number of the first block that is a fresh start, in a search that is not thorough.
FRESH = EFFORTS["normal"].rounds_in_script + 1
SCRIPT = replace(SPACE, confirm_alone=True, alternates=True)


def look(count: int, goodput: float, block: int = 0) -> Outcome:
    """What a measurement shows whose repeats differ by some per cent."""
    found = beside.look(count, goodput, block)
    assert found.measurement is not None
    rate = goodput * CEILING
    return replace(found, measurement=replace(found.measurement, ci95=(0.94 * rate, 1.06 * rate)))


#: Two worker counts about as fast, neither of which suffices; the larger one had luck.
ALIKE = (DEFAULT, SLOW, look(1, 0.40), look(2, 0.615), look(3, 0.63))


def block_of(outcomes: tuple[Outcome, ...], *, effort: str = "thorough", alternates: bool = True) -> int:
    space = replace(SCRIPT, alternates=alternates)
    proposal = search.propose(space, outcomes, replace(GOAL, effort=effort), 0, grid=True)
    return 0 if proposal is None else proposal.block


def test_the_best_and_what_may_be_as_fast_take_turns_before_fresh_starts() -> None:
    outcomes, members = ALIKE, []
    side_by_side = {2: 0.62, 3: 0.61}
    while (proposal := search.propose(SCRIPT, outcomes, GOAL, 0, grid=True)) and proposal.block <= ROUNDS:
        workers = proposal.candidate.num_workers
        members.append((proposal.block, workers))
        outcomes = (*outcomes, look(workers, side_by_side[workers], block=proposal.block))
    assert sorted(members) == [(1, 2), (1, 3), (2, 2), (2, 3)]
    assert not search.is_confirmed(SCRIPT, outcomes, GOAL)  # that takes fresh starts
    choice = search.choose(outcomes, GOAL, SCRIPT)
    assert choice is not None
    assert choice.outcome.candidate.num_workers == 2
    fresh: dict[str, int] = {}
    while proposal := search.propose(SCRIPT, outcomes, GOAL, 0, grid=True, blocks=1):
        fresh[proposal.candidate.key] = proposal.block
        like = next(o for o in reversed(outcomes) if o.candidate == proposal.candidate)
        outcomes = (*outcomes, replace(like, block=proposal.block))
    assert fresh == {"opencv-w2-p2-b64": ROUNDS + 1, "pillow-w0-p0-b64": ROUNDS + 1}
    assert search.is_confirmed(SCRIPT, outcomes, GOAL)


def test_those_with_the_fewest_workers_are_compared_with_the_best() -> None:
    space = replace(SCRIPT, workers=(0, 1, 2, 3, 4))
    outcomes = (DEFAULT, SLOW, look(1, 0.62), look(2, 0.625), look(3, 0.625), look(4, 0.64))
    members = set()
    while (proposal := search.propose(space, outcomes, GOAL, 0, grid=True)) and proposal.block == 1:
        members.add(proposal.candidate.num_workers)
        like = next(o for o in outcomes if o.candidate == proposal.candidate)
        outcomes = (*outcomes, replace(like, block=1))
    assert members == {1, 2, 4}


@pytest.mark.parametrize(("effort", "rounds"), [("normal", 3), ("quick", 1)])
def test_other_searches_have_them_for_the_proof_of_an_edit_only(effort: str, rounds: int) -> None:
    goal = replace(GOAL, effort=effort)
    assert own_starts(goal) == [False, *(block > rounds for block in (1, 2, 3))]
    assert own_starts(GOAL) == [False, False, False, True]
    assert block_of(ALIKE, effort=effort) == rounds + 1, "three times as fast, whichever it is"
    own = look(1, 0.58)
    space = replace(SCRIPT, untuned=own.candidate, prefetch=(2,))
    doubtful = (replace(own, role="baseline"), look(2, 0.65))
    proposal = search.propose(space, doubtful, goal, 0, grid=True, blocks=1)
    while proposal is not None and proposal.block == 0:
        doubtful = (*doubtful, look(proposal.candidate.num_workers, 0.4))
        proposal = search.propose(space, doubtful, goal, 0, grid=True, blocks=1)
    assert proposal is not None
    assert proposal.block == 1
    assert proposal.candidate in (own.candidate, look(2, 0.65).candidate)


def test_where_each_measurement_is_a_start_of_the_script_there_are_none() -> None:
    assert block_of(ALIKE, alternates=False) == 1
    assert search.has_own_start(replace(SCRIPT, alternates=False), (), GOAL, DEFAULT.candidate, 1)


def test_what_is_decided_goes_to_fresh_starts_at_once() -> None:
    assert block_of((DEFAULT, SLOW, look(1, 0.4), look(2, 0.5), look(3, 0.75))) == ROUNDS + 1


def test_without_blocks_nothing_takes_turns() -> None:
    assert search.propose(SCRIPT, ALIKE, GOAL, 0, grid=True, blocks=0) is None


@pytest.mark.parametrize("of", [(0, 1), (1,), (0,)])
def test_a_candidate_that_needs_a_process_of_its_own_takes_no_turns(of: tuple[int, ...]) -> None:
    def other(candidate: Candidate) -> Candidate:
        return replace(candidate, allocator="tcmalloc")

    space = replace(SCRIPT, settings=(("allocator", ("default", "tcmalloc")),))
    pair = [replace(o, candidate=other(o.candidate)) if n in of else o for n, o in enumerate(ALIKE[-2:])]
    block = next_block(space, (DEFAULT, SLOW, *pair), GOAL, 0, 1)
    assert block is not None
    assert block[1] == ROUNDS + 1


@pytest.mark.parametrize("cut", range(len(ALIKE), 9))
def test_resumed_anywhere_the_rounds_are_the_same(cut: int) -> None:
    def search_on(outcomes: tuple[Outcome, ...]) -> tuple[Outcome, ...]:
        while proposal := search.propose(SCRIPT, outcomes, GOAL, 0, grid=True, blocks=1):
            like = next(o for o in ALIKE if o.candidate == proposal.candidate)
            outcomes = (*outcomes, replace(like, block=proposal.block))
        return outcomes

    whole = search_on(ALIKE)
    assert {outcome.block for outcome in whole} == {0, 1, ROUNDS + 1}  # one round has decided
    assert search_on(whole[:cut]) == whole


def own_starts(goal: Goal) -> list[bool]:
    return [search.has_own_start(SCRIPT, ALIKE, goal, ALIKE[-1].candidate, block) for block in (0, 1, 2, 3)]


def test_what_a_fresh_start_has_confirmed_is_kept_where_another_may_be_as_fast() -> None:
    """Its rate was lower there than before, as that of the other would be."""
    goal = replace(GOAL, effort="normal")
    fresh = (look(3, 0.57, block=FRESH), replace(DEFAULT, block=FRESH))
    choice = search.choose((*ALIKE, *fresh), goal, SCRIPT)
    assert choice is not None
    assert choice.outcome.candidate.num_workers == 3
    assert search.propose(SCRIPT, (*ALIKE, *fresh), goal, 0, grid=True, blocks=1) is None
    far = (DEFAULT, SLOW, look(1, 0.40), look(2, 0.80), look(3, 0.81), *fresh)
    proposal = search.propose(SCRIPT, far, goal, 0, grid=True, blocks=1)
    assert proposal is not None
    assert proposal.candidate.num_workers == 2, "faster by more than chance explains"


def deep(one: Outcome) -> Outcome:
    return replace(one, candidate=replace(one.candidate, prefetch_depth=4))


@pytest.mark.parametrize(
    ("luckier", "cores"), [(look(3, 0.66), 2.0), (deep(look(2, 0.66)), 8.0), (deep(look(3, 0.66)), 2.0)]
)
def test_more_workers_than_cores_or_a_deeper_prefetch_are_not_recommended_for_what_chance_may_explain(
    luckier: Outcome, cores: float
) -> None:
    goal = replace(GOAL, effort="normal")
    space = replace(SCRIPT, usable_cores=cores, prefetch=(2, 4))
    usual = look(2, 0.62)

    def recommended(*outcomes: Outcome, space: Space = space) -> Candidate:
        choice = search.choose((DEFAULT, SLOW, look(1, 0.40), usual, *outcomes), goal, space)
        assert choice is not None
        return choice.outcome.candidate

    assert recommended(luckier) == usual.candidate
    choice = search.choose((DEFAULT, SLOW, look(1, 0.40), usual, luckier), goal, space)
    assert choice is not None
    assert any("was 6 % faster, which chance may explain" in doubt for doubt in choice.doubts)
    assert recommended(luckier, space=replace(space, untuned=luckier.candidate)) == luckier.candidate
    assert recommended(luckier, space=replace(space, confirm_alone=False)) == luckier.candidate
    certain = replace(luckier, measurement=faster(luckier.measurement))
    assert recommended(certain) == certain.candidate


def faster(found: Measurement | None) -> Measurement:
    assert found is not None
    return replace(found, samples_per_s=0.8 * CEILING, goodput=0.8, ci95=(0.77 * CEILING, 0.83 * CEILING))


def test_a_slow_one_whose_interval_holds_everything_is_not_as_good_as_the_fastest() -> None:
    goal, space = replace(GOAL, effort="normal"), replace(SCRIPT, usable_cores=2.0)
    fast, usual = look(3, 0.70), look(2, 0.58)
    wide = replace(look(1, 0.40).measurement or fail(), ci95=(0.05 * CEILING, 0.85 * CEILING))
    slow = replace(look(1, 0.40), measurement=wide)
    choice = search.choose((DEFAULT, SLOW, slow, usual, fast), goal, space)
    assert choice is not None
    assert choice.outcome.candidate == fast.candidate


def test_what_a_fresh_start_has_made_slower_gives_way_to_one_with_no_more_workers_than_cores() -> None:
    goal, space = replace(GOAL, effort="normal"), replace(SCRIPT, usable_cores=2.0)
    before = (DEFAULT, SLOW, look(1, 0.40), look(2, 0.62), look(3, 0.71))
    choice = search.choose(before, goal, space)
    assert choice is not None
    assert choice.outcome.candidate.num_workers == 3, "faster by more than chance explains"
    after = (*before, look(3, 0.57, block=FRESH), replace(DEFAULT, block=FRESH))
    ended = after
    while proposal := search.propose(space, ended, goal, 0, grid=True, blocks=1):
        assert proposal.block == FRESH + 1
        again = replace(DEFAULT, block=FRESH + 1)
        ended = (*ended, again if proposal.candidate == DEFAULT.candidate else look(2, 0.60, block=FRESH + 1))
    assert len(ended) == len(after) + 2, "beside the script as it is"
    choice = search.choose(ended, goal, space)
    assert choice is not None
    assert choice.outcome.candidate.num_workers == 2
    assert search.propose(space, ended, goal, 0, grid=True, blocks=1) is None


def fail() -> Measurement:
    raise AssertionError("it was measured")
