"""Blocks: the best candidate and its rivals measured one after the other, in random order, several times. Pure.

A change of the machine's speed changes all candidates of a block alike, so differences within a block are theirs. The
first block is always measured: with the default, against which the gain is stated, and with the second best candidate
where no rival is undecided. Others follow while chance may decide whether the target is reached or, where no candidate
reaches it, which one is the fastest, and in a thorough search while anything is undecided. A recommendation that was in
none of them, because those that were turned out worse than their first looks, is measured in one more.

In a user's script that runs, candidates can take turns without a fresh start: the first blocks are such rounds, where
something is undecided, and those after them are fresh starts of the best candidate and the script as it is.

Nothing is recommended that is not proven (:mod:`pipetune.search.proof`). So blocks of the candidate in question and the
baseline are added while they may prove the edit, and where the interval of its gain is too wide to say anything.

Why: without blocks the 95th percentile of regret is 4.9 % instead of 1.9 %.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from pipetune.candidates.settings import needs_own_process
from pipetune.candidates.space import Space
from pipetune.records.sweep import Candidate, Goal, Outcome
from pipetune.search.choice import cheapest, choose, eligible
from pipetune.search.costs import Pair, is_cheaper
from pipetune.search.effort import EFFORTS, is_thorough
from pipetune.search.pooled import (
    CHANGED_SPEED,
    baseline,
    cores_of,
    felt_change,
    is_inconclusive,
    meets,
    noise_of,
    pool,
    present_speed,
)
from pipetune.search.proof import find_contender, is_clear, is_open, is_within_reach, judge_edit
from pipetune.search.ties import SAME_RATE, common_blocks, is_undecided

#: So often fresh starts of a user's script confirm what is recommended.
_SCRIPT_BLOCKS = 1
#: Where no candidate is sufficient, one that is slower than the best by more than this share is no rival.
_NEAR = 0.03


def unfinished_block(space: Space, outcomes: Sequence[Outcome], goal: Goal, seed: int) -> tuple[Candidate, int] | None:
    """The next candidate of the block that was begun, and the block's number; ``None``: all were measured."""
    block = max((outcome.block for outcome in outcomes), default=0)
    if block <= goal.settled_blocks:
        return None
    first = next(number for number, outcome in enumerate(outcomes) if outcome.block == block)
    done = {outcome.candidate.key for outcome in outcomes[first:] if outcome.block == block}
    of_block = _round if block <= last_round(space, goal) else _members
    members = of_block(space, outcomes[:first], goal, seed, block)
    return next(((candidate, block) for candidate in members if candidate.key not in done), None)


def next_block(
    space: Space, outcomes: Sequence[Outcome], goal: Goal, seed: int, limit: int, *, turns: bool = True
) -> tuple[Candidate, int] | None:
    """The first candidate of another block and its number; ``None``: nothing is undecided, or ``limit`` is reached.

    A recommendation that was in no block gets one beyond the limit, unless the limit is 0.

    Args:
        turns: there is time for another round in the user's running script.
    """
    block, rounds = max((outcome.block for outcome in outcomes), default=0) + 1, last_round(space, goal)
    if block <= rounds:
        if limit and turns and (members := _round(space, outcomes, goal, seed, block)):
            return members[0], block
        block = rounds + 1
    allowed = block - rounds <= limit or (limit > 0 and unconfirmed(space, outcomes, goal) is not None)
    members = _members(space, outcomes, goal, seed, block) if allowed else []
    return (members[0], block) if members else None


def last_round(space: Space, goal: Goal) -> int:
    """Number of the last block that is a round in the user's running script, or of an earlier search: the first one
    after it confirms."""
    return goal.settled_blocks + (EFFORTS[goal.effort].rounds_in_script if space.alternates else 0)


def has_own_start(space: Space, outcomes: Sequence[Outcome], goal: Goal, candidate: Candidate, block: int) -> bool:
    """Whether a candidate begins as a training does, in a new process; block 0: before all blocks.

    Of a user's script it does in all blocks that are no rounds. Else in the first block that it is part of, so that
    what is recommended was confirmed this way whenever it came up; after that it may share a process.
    """
    if space.confirm_alone:
        return block > last_round(space, goal)
    return block > goal.settled_blocks and not any(
        goal.settled_blocks < outcome.block < block and outcome.candidate == candidate and outcome.measurement
        for outcome in outcomes
    )


def limit_of(space: Space, outcomes: Sequence[Outcome], goal: Goal) -> int:
    """How many blocks the goal's effort has: more while chance may have decided whether the target is reached, and
    where no candidate reaches it.

    In a user's script, where each block is a fresh start, one; unless the search is thorough. What that has left
    undecided gets another one, where a single one may prove it.
    """
    done = max((outcome.block for outcome in outcomes), default=0) - last_round(space, goal)
    if space.confirm_alone and not is_thorough(goal):
        return _SCRIPT_BLOCKS + (done > 0 and _open_question(space, outcomes, goal, 1) is not None)
    allowed = EFFORTS[goal.effort].blocks_for_proof
    question = None if space.confirm_alone else _open_question(space, outcomes, goal, allowed - max(0, done))
    return max(_usual_limit(space, outcomes, goal), 0 if question is None else allowed)


def _usual_limit(space: Space, outcomes: Sequence[Outcome], goal: Goal) -> int:
    effort = EFFORTS[goal.effort]
    pooled = pool(outcomes, goal)
    noise = noise_of(outcomes)
    best = cheapest(pooled.values(), goal, space, noise)
    if best is None or best.measurement is None:
        return effort.blocks
    if _is_at_target((best, best.measurement), eligible(pooled.values(), goal, space), goal, space, noise):
        return effort.blocks_at_target
    none = not meets(best.measurement, goal) and not space.confirm_alone
    return effort.blocks_where_none if none else effort.blocks


def _open_question(space: Space, outcomes: Sequence[Outcome], goal: Goal, blocks: int | None) -> Candidate | None:
    """The candidate of which it is not proven that the baseline should be changed to it; ``None``: there is none that
    further blocks may prove.

    Args:
        blocks: so many may follow, and it is ``None``, too, where they are too few; ``None``: any number.
    """
    contender = find_contender(outcomes, goal, space)
    edit = None if contender is None else judge_edit(contender, outcomes, space)
    if edit is None or not is_open(edit) or (blocks is not None and not is_within_reach(edit, blocks)):
        return None
    return contender


def _is_at_target(best: Pair, pairs: Sequence[Pair], goal: Goal, space: Space, noise: float) -> bool:
    """Whether the best candidate or a cheaper one has the target within its interval."""
    return is_inconclusive(best[1], goal) or any(
        is_inconclusive(pair[1], goal) and not meets(pair[1], goal) and is_cheaper(pair, best, goal, space, noise)
        for pair in pairs
    )


def unconfirmed(space: Space, outcomes: Sequence[Outcome], goal: Goal) -> Candidate | None:
    """The recommended candidate, where it was measured in no block; ``None``: it was, or it is the default."""
    choice = choose(outcomes, goal, space)
    if choice is None or choice.outcome.candidate == baseline(space):
        return None
    candidate = choice.outcome.candidate
    return None if candidate.key in _compared(outcomes, last_round(space, goal)) else candidate


def _compared(outcomes: Sequence[Outcome], after: int = 0) -> set[str]:
    """Keys of the candidates that were measured in a block with a number above this one."""
    return {outcome.candidate.key for outcome in outcomes if outcome.block > after and outcome.measurement}


def _round(space: Space, outcomes: Sequence[Outcome], goal: Goal, seed: int, block: int) -> list[Candidate]:
    """The candidates that take turns in the user's running script, in their random order; empty: nothing is undecided.

    Of those that may be as good as the best one, the simplest come first: it is them that would be recommended. Unless
    the search is thorough, only what may prove that the script should be changed is measured.
    """
    members = _rivals_in_round(space, outcomes, goal) if is_thorough(goal) else []
    if not members:
        left = last_round(space, goal) - block + 2  # a fresh start follows the rounds
        contender = find_contender(outcomes, goal, space)
        edit = None if contender is None else judge_edit(contender, outcomes, space)
        doubtful = edit is not None and edit.is_proven and not is_clear(edit)
        is_asked = doubtful or _open_question(space, outcomes, goal, left) is not None
        if contender is not None and is_asked and not needs_own_process(contender):
            members = [contender, baseline(space)]
    random.Random(f"{seed} {block}").shuffle(members)
    return members


def _rivals_in_round(space: Space, outcomes: Sequence[Outcome], goal: Goal) -> list[Candidate]:
    pooled, noise = pool(outcomes, goal), noise_of(outcomes)
    best = cheapest(pooled.values(), goal, space, noise)
    if best is None or best.measurement is None or needs_own_process(best.candidate):
        return []
    pairs = [pair for pair in eligible(pooled.values(), goal, space) if pair[0].candidate != best.candidate]
    suffices = meets(best.measurement, goal)
    rivals = _rivals(best, pairs, outcomes, goal, space, noise) if suffices else _as_fast(best, pairs, near=1.0)
    near = [outcome.candidate for outcome, _ in rivals if not needs_own_process(outcome.candidate)]
    near.sort(key=lambda candidate: (candidate.num_workers, candidate.prefetch_depth))
    return [best.candidate, *near[: EFFORTS[goal.effort].rivals]] if near else []


def _members(space: Space, outcomes: Sequence[Outcome], goal: Goal, seed: int, block: int) -> list[Candidate]:
    """The candidates of a block in their random order; empty: there is no reason for the block."""
    is_first = block == last_round(space, goal) + 1
    base = baseline(space)
    if space.confirm_alone and any(outcome.candidate == base and outcome.measurement for outcome in outcomes):
        members = _to_confirm(space, outcomes, goal)
    else:
        members = _undecided(space, outcomes, goal, is_first=is_first)
        if (contender := _open_question(space, outcomes, goal, None)) is not None:
            members += [contender, base]
    members = list(dict.fromkeys(members))
    random.Random(f"{seed} {block}").shuffle(members)
    return members


def _to_confirm(space: Space, outcomes: Sequence[Outcome], goal: Goal) -> list[Candidate]:
    """What fresh starts of the user's script are worth: a change that is proven, or that one block may prove.

    What stays as it is needs no confirmation. Each start takes as long as the script does until it trains.
    """
    contender = find_contender(outcomes, goal, space)
    edit = None if contender is None else judge_edit(contender, outcomes, space)
    if contender is None or edit is None:
        return []
    confirmed = edit.is_proven and contender.key in _compared(outcomes, last_round(space, goal))
    side_by_side = edit.blocks > 0
    near = is_within_reach(edit, 1) if not side_by_side else edit.more_blocks == 1
    asked_for_more = goal.settled_blocks > 0 and is_open(edit)
    if confirmed or not (edit.is_proven or near or asked_for_more):
        return []
    return [contender, baseline(space)]


def _undecided(space: Space, outcomes: Sequence[Outcome], goal: Goal, *, is_first: bool) -> list[Candidate]:
    """The best candidate with those that may be as good, and the baseline in the first block."""
    pooled = pool(outcomes, goal)
    noise = noise_of(outcomes)
    best = cheapest(pooled.values(), goal, space, noise)
    if best is None or best.measurement is None:
        return []
    pairs = [pair for pair in eligible(pooled.values(), goal, space) if pair[0].candidate != best.candidate]
    suffices = meets(best.measurement, goal)
    rivals = _rivals(best, pairs, outcomes, goal, space, noise) if suffices else _as_fast(best, pairs)
    now = present_speed(outcomes)
    changed = now is not None and abs(felt_change(best.measurement, now)) > CHANGED_SPEED
    new = unconfirmed(space, outcomes, goal)
    undecided = rivals or changed or is_inconclusive(best.measurement, goal) or (not is_first and new)
    if not undecided and (not is_first or best.candidate == baseline(space)):
        return []
    if is_first and not rivals:
        rivals = _second_best(pairs, goal)
    most = 0 if space.confirm_alone else EFFORTS[goal.effort].rivals
    members = [best.candidate, *(outcome.candidate for outcome, _ in rivals[:most])]
    if new is not None:
        members.append(new)  # recommended by its measured rate, not by the one at the machine's present speed
    if is_first and baseline(space).key in pooled:
        members.append(baseline(space))  # the gain is stated against it
    return members


def _rivals(
    best: Outcome, pairs: Sequence[Pair], outcomes: Sequence[Outcome], goal: Goal, space: Space, noise: float
) -> list[Pair]:
    """Candidates that other chance would have made the recommended one, likeliest first.

    Where the best candidate was never measured in a block, all those that were are its rivals.
    """
    assert best.measurement is not None
    own = (best, best.measurement)
    compared = _compared(outcomes)
    never_compared = best.candidate.key not in compared
    cheaper, level = [], []
    for pair in pairs:
        key = pair[0].candidate.key
        if not meets(pair[1], goal):
            if is_inconclusive(pair[1], goal) and is_cheaper(pair, own, goal, space, noise):
                cheaper.append(pair)
        elif (never_compared and key in compared) or is_undecided(
            own, pair, goal, space, noise, repeats=common_blocks(outcomes, best, pair[0])
        ):
            level.append(pair)
    cheaper.sort(key=lambda pair: -pair[1].samples_per_s)
    return [*cheaper, *sorted(level, key=lambda pair: cores_of(*pair))]


def _second_best(pairs: Sequence[Pair], goal: Goal) -> list[Pair]:
    """The sufficient candidate with the fewest cores, or the fastest one; empty: there is no other candidate."""
    enough = [pair for pair in pairs if meets(pair[1], goal)]
    if enough:
        return [min(enough, key=lambda pair: cores_of(*pair))]
    return [max(pairs, key=lambda pair: pair[1].samples_per_s)] if pairs else []


def _as_fast(best: Outcome, pairs: Sequence[Pair], near: float = _NEAR) -> list[Pair]:
    """Candidates whose interval allows that they are faster than the best by more than rates of the same are apart.

    Args:
        near: slower ones by more than this share are left out.
    """
    assert best.measurement is not None
    rate = best.measurement.samples_per_s
    found = [
        (outcome, m)
        for outcome, m in pairs
        if m.samples_per_s > (1 - near) * rate and m.ci95[1] > (1 + SAME_RATE) * rate
    ]
    return sorted(found, key=lambda pair: -pair[1].samples_per_s)
