"""What is left in doubt at the end is decided in blocks: the best candidate and its rivals, again and again, in random
order. What a restless machine does to one of a block it does to the others, too. Pure.

The first block is measured in any case: with the default, from which the gain is stated, and with the one that comes
next where no rival is in doubt. Further ones follow while something is in doubt, up to :data:`MOST_BLOCKS`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from pipetune.candidates.space import Space
from pipetune.records.sweep import Candidate, Goal, Outcome
from pipetune.search.choice import (
    SAME_RATE,
    Pair,
    cheapest,
    common_blocks,
    is_cheaper,
    is_in_doubt,
    listed,
    noise_of,
)
from pipetune.search.pooled import CHANGED_SPEED, baseline, cores_of, known, meets, present_speed, speed_of, straddles

#: Blocks at most, and rivals in each.
MOST_BLOCKS, MOST_RIVALS = 3, 2
#: Where nothing suffices, what is slower than the best by more than this share is no rival.
_NEAR = 0.03


def unfinished_block(space: Space, outcomes: Sequence[Outcome], goal: Goal, seed: int) -> tuple[Candidate, int] | None:
    """The next candidate of the block that has begun, and its number; ``None``: all of its candidates were measured."""
    block = max((outcome.block for outcome in outcomes), default=0)
    if not block:
        return None
    first = next(number for number, outcome in enumerate(outcomes) if outcome.block == block)
    done = {outcome.candidate.key for outcome in outcomes[first:] if outcome.block == block}
    members = _members(space, outcomes[:first], goal, seed, block)
    return next(((candidate, block) for candidate in members if candidate.key not in done), None)


def next_block(
    space: Space, outcomes: Sequence[Outcome], goal: Goal, seed: int, most: int = MOST_BLOCKS
) -> tuple[Candidate, int] | None:
    """The first candidate of another block; ``None``: nothing is in doubt, or there have been ``most``."""
    block = max((outcome.block for outcome in outcomes), default=0) + 1
    members = _members(space, outcomes, goal, seed, block) if block <= most else []
    return (members[0], block) if members else None


def _members(space: Space, outcomes: Sequence[Outcome], goal: Goal, seed: int, block: int) -> list[Candidate]:
    seen = known(outcomes, goal)
    best = cheapest(seen.values(), goal, space)
    if best is None or best.measurement is None:
        return []
    pairs = [pair for pair in listed(seen.values(), goal, space) if pair[0].candidate != best.candidate]
    suffices = meets(best.measurement, goal)
    noise = noise_of(seen.values())
    rivals = _rivals(best, pairs, outcomes, goal, space, noise) if suffices else _as_fast(best, pairs)
    now = present_speed(outcomes)
    changed = now is not None and abs(now / speed_of(best.measurement) - 1) > CHANGED_SPEED
    doubt = rivals or changed or (suffices and straddles(best.measurement, goal))
    if not doubt and (block > 1 or best.candidate == baseline(space)):
        return []
    if block == 1 and not rivals:
        rivals = _next_best(pairs, goal)
    members = [best.candidate, *(outcome.candidate for outcome, _ in rivals[:MOST_RIVALS])]
    if block == 1 and baseline(space) not in members and baseline(space).key in seen:
        members.append(baseline(space))  # the gain is stated against it
    random.Random(f"{seed} {block}").shuffle(members)
    return members


def _rivals(
    best: Outcome, pairs: Sequence[Pair], outcomes: Sequence[Outcome], goal: Goal, space: Space, noise: float
) -> list[Pair]:
    """Those that would be recommended if chance had been kinder to them; likeliest first.

    What was never measured beside others and is the best all the same is measured beside those that it has beaten.
    """
    assert best.measurement is not None
    own = (best, best.measurement)
    compared = {outcome.candidate.key for outcome in outcomes if outcome.block and outcome.measurement}
    unseen = best.candidate.key not in compared
    cheaper, level = [], []
    for pair in pairs:
        key = pair[0].candidate.key
        if not meets(pair[1], goal):
            if straddles(pair[1], goal) and is_cheaper(pair, own, goal, space, noise):
                cheaper.append(pair)
        elif (unseen and key in compared) or is_in_doubt(
            own, pair, goal, space, noise, looks=common_blocks(outcomes, best, pair[0])
        ):
            level.append(pair)
    cheaper.sort(key=lambda pair: -pair[1].samples_per_s)
    return [*cheaper, *sorted(level, key=lambda pair: cores_of(*pair))]


def _next_best(pairs: Sequence[Pair], goal: Goal) -> list[Pair]:
    """What would be recommended, about, were it not for the best one."""
    enough = [pair for pair in pairs if meets(pair[1], goal)]
    if enough:
        return [min(enough, key=lambda pair: cores_of(*pair))]
    return [max(pairs, key=lambda pair: pair[1].samples_per_s)] if pairs else []


def _as_fast(best: Outcome, pairs: Sequence[Pair]) -> list[Pair]:
    """Those that may be faster by more than makes no difference; fastest first."""
    assert best.measurement is not None
    rate = best.measurement.samples_per_s
    found = [
        (outcome, m)
        for outcome, m in pairs
        if m.samples_per_s > (1 - _NEAR) * rate and m.ci95[1] > (1 + SAME_RATE) * rate
    ]
    return sorted(found, key=lambda pair: -pair[1].samples_per_s)
