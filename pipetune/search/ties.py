"""Ties: candidates that the measurement cannot separate from the recommended one at 95 %. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pipetune.candidates.space import Space
from pipetune.records.sweep import Goal, Outcome
from pipetune.search.costs import CRITERIA, Pair, cheapest_by
from pipetune.search.pooled import achieved, meets
from pipetune.stats.noise import difference_by_chance

#: Two rates are the same, where no candidate is sufficient, if they differ by less than this share.
SAME_RATE = 0.02
#: Relative standard deviation of the CPU time per image between repeats of two seconds, also on a machine whose
#: fixed decode loop hardly scatters: 0.08 over 20 measurements of seven candidates in two sweeps of a shared machine
#: with 2 cores. A candidate that is cheaper by no more than that is measured again.
CPU_NOISE = 0.08


def ties_of(
    best: Pair, pairs: Sequence[Pair], outcomes: Sequence[Outcome], goal: Goal, space: Space, noise: float
) -> tuple[Outcome, ...]:
    """The candidates that tie with the best one.

    Args:
        best: the recommended candidate.
        pairs: all candidates that may be recommended, with what is known of each.
        outcomes: all measurements of the sweep.
        noise: relative standard deviation between repeats on this machine.
    """
    enough = [pair for pair in pairs if meets(pair[1], goal)]
    if enough:
        same = {outcome.candidate.key for outcome, _ in _equally_cheap(enough, goal, space, noise)}
        for pair in enough:
            if is_undecided(best, pair, goal, space, noise, repeats=common_blocks(outcomes, best[0], pair[0])):
                same.add(pair[0].candidate.key)
    else:
        same = {outcome.candidate.key for outcome, _ in closest(pairs, goal)}
    return tuple(o for o, _ in pairs if o.candidate.key in same and o.candidate != best[0].candidate)


def is_undecided(one: Pair, other: Pair, goal: Goal, space: Space, noise: float, *, repeats: int = 1) -> bool:
    """Whether chance may have decided which of the two is cheaper (95 %).

    That is so if repeats of one candidate differ as much as the two do in the first criterion in which they differ.

    Args:
        noise: relative standard deviation between repeats on this machine.
        repeats: how often both were measured side by side.
    """
    chance = difference_by_chance(max(noise, CPU_NOISE), max(1, repeats))
    for name in goal.cheapest:
        criterion = CRITERIA[name]
        values = [criterion.value(*pair, space) for pair in (one, other)]
        apart, smaller = abs(values[0] - values[1]), min(values)
        if apart > criterion.tolerance(smaller, noise):
            return apart <= criterion.tolerance(smaller, chance)
    return False


def common_blocks(outcomes: Iterable[Outcome], one: Outcome, other: Outcome) -> int:
    """Number of blocks in which both candidates were measured."""
    found: dict[str, set[int]] = {one.candidate.key: set(), other.candidate.key: set()}
    for outcome in outcomes:
        if outcome.block and outcome.measurement and outcome.candidate.key in found:
            found[outcome.candidate.key].add(outcome.block)
    return len(set.intersection(*found.values()))


def closest(pairs: Sequence[Pair], goal: Goal) -> list[Pair]:
    """Where none is sufficient: those that come closest to the target, all within :data:`SAME_RATE` of the best."""
    shares = [achieved(m, goal) or 0.0 for _, m in pairs]
    best = max(shares, default=0.0)
    if best <= 0:
        fastest = max((m.samples_per_s for _, m in pairs), default=0.0)
        return [pair for pair in pairs if pair[1].samples_per_s >= (1 - SAME_RATE) * fastest]
    return [pair for pair, share in zip(pairs, shares, strict=True) if share >= (1 - SAME_RATE) * best]


def _equally_cheap(pairs: Sequence[Pair], goal: Goal, space: Space, noise: float) -> Sequence[Pair]:
    """Those that cost the same in the first criterion that separates any, decoding on the accelerator aside."""
    for name in goal.cheapest:
        left = cheapest_by(pairs, CRITERIA[name], space, noise)
        if len(left) < len(pairs) and name != "accelerator":
            return left
        pairs = left
    return pairs
