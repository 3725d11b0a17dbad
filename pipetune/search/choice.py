"""Which candidate to recommend: the cheapest sufficient one, with its ties and uncertainties. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pipetune.candidates.describe import describe
from pipetune.candidates.settings import SETTINGS, has_effect
from pipetune.candidates.space import Space
from pipetune.records.sweep import Candidate, Goal, Outcome
from pipetune.search.costs import CRITERIA, Pair, cheapest_by
from pipetune.search.pooled import baseline, is_inconclusive, latest, meets, noise_of, pool
from pipetune.search.ties import SAME_RATE, closest, ties_of
from pipetune.search.uncertainties import uncertainties
from pipetune.stats.intervals import differ


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What is recommended."""

    outcome: Outcome
    ties: tuple[Outcome, ...]
    """Candidates that the measurement cannot separate from it at 95 %: in the first cost in which candidates differ, or
    in the rate where none is sufficient."""
    doubts: tuple[str, ...]
    """Uncertainties: why another candidate may be the right one; empty where nothing suggests that."""


def choose(outcomes: Sequence[Outcome], goal: Goal, space: Space) -> Choice | None:
    """The recommended candidate with its ties and uncertainties; ``None`` if nothing was measured.

    It is chosen by the rates that the candidates would have at the machine's present speed. Where the chosen one's
    measured rate says otherwise about the target, it is chosen by the measured rates.
    """
    pooled, measured, noise = pool(outcomes, goal), latest(outcomes), noise_of(outcomes)
    best = cheapest(pooled.values(), goal, space, noise)
    if best is None or best.measurement is None:
        return None
    doubts: list[str] = []
    as_measured = measured[best.candidate.key].measurement
    if as_measured is None or meets(as_measured, goal) != meets(best.measurement, goal):
        now, pooled = best.candidate, measured
        best = cheapest(pooled.values(), goal, space, noise)
        if best is None or best.measurement is None:
            return None
        if now != best.candidate:
            doubts.append(f"at the machine's present speed {describe(now)} may be the better choice")
    best = _as_it_is(best, measured, goal, space)
    assert best.measurement is not None
    pairs, own = eligible(pooled.values(), goal, space), (best, best.measurement)
    ties = ties_of(own, pairs, outcomes, goal, space, noise)
    doubts += uncertainties(own, pairs, outcomes, goal, space)
    doubts += _faster_by_chance(own, pairs, goal, space)
    return Choice(outcome=best, ties=ties, doubts=tuple(doubts))


def _as_it_is(best: Outcome, measured: Mapping[str, Outcome], goal: Goal, space: Space) -> Outcome:
    """The best candidate; or the user's own loader as it is, where none suffices and the best one is not faster.

    Why: the best one was chosen for a rate that chance may have made, and where the machine is disturbed it was
    recommended although it was slower side by side with the script.
    """
    allowed = (outcome for outcome, _ in eligible(measured.values(), goal, space))  # within the memory limit, say
    own = next((outcome for outcome in allowed if outcome.candidate == space.untuned), None)
    now = measured[best.candidate.key].measurement
    if own is None or own.measurement is None or best.measurement is None or now is None:
        return best
    if meets(best.measurement, goal) or now.samples_per_s > own.measurement.samples_per_s:
        return best
    return own


def cheapest(outcomes: Iterable[Outcome], goal: Goal, space: Space, noise: float) -> Outcome | None:
    """The cheapest candidate that meets the goal; if none does, the cheapest of those that come closest.

    The order is that of ``goal.cheapest``, then fewest workers, fewest settings off their default, smallest prefetch
    depth. Costs that differ by less than repeats of one candidate do are the same, so that chance does not decide
    and the next criterion does. Of the same cores or memory, candidates whose whole interval reaches the target come
    first. Where none meets it, a script or loader of the user's stays as it is unless another candidate is faster or
    takes fewer cores.

    Args:
        outcomes: one per candidate (see :func:`pipetune.search.pooled.pool`).
        noise: relative standard deviation between repetitions (see :func:`pipetune.search.pooled.noise_of`).
    """
    pairs = eligible(outcomes, goal, space)
    enough = [pair for pair in pairs if meets(pair[1], goal)]
    suffices = bool(enough)
    if suffices:
        enough = _without_losses(enough, space)
    else:
        fastest = _without_chance_gains(closest(pairs, goal), pairs, goal, space)
        enough = _as_good_confirmed(fastest, pairs, goal, space)
    for name in goal.cheapest:
        enough = cheapest_by(enough, CRITERIA[name], space, noise)
        if suffices and name in ("cores", "memory"):
            enough = [pair for pair in enough if not is_inconclusive(pair[1], goal)] or enough
        elif name == "cores":  # nothing is gained but memory: no reason to change what the user has
            enough = [pair for pair in enough if pair[0].candidate == space.untuned] or enough
    first = min(enough, key=lambda pair: _simplicity(pair[0].candidate), default=None)
    return first[0] if first else None


def _without_losses(enough: list[Pair], space: Space) -> list[Pair]:
    """The sufficient candidates; where the baseline is one, without those that are slower than it.

    Why: an edit that costs more than :data:`SAME_RATE` of the rate is not recommended, whatever it saves.
    """
    base = next((m for outcome, m in enough if outcome.candidate == baseline(space)), None)
    if base is None:
        return enough
    return [pair for pair in enough if pair[1].samples_per_s >= (1 - SAME_RATE) * base.samples_per_s]


def _without_chance_gains(fastest: list[Pair], pairs: Sequence[Pair], goal: Goal, space: Space) -> list[Pair]:
    """The fastest; or, of a script's candidates, the fastest of those with no more workers than cores and no deeper
    prefetch than usual, unless chance does not explain that others are faster.

    Why: neither lets a loader that takes all cores decode more, and the best of several noisy rates is often one of
    theirs. On two cores a script with short epochs had with three workers 0.96 of the rate that it had with two, with
    four 0.95, and with a depth of 4 besides 0.89 (medians of six turns).
    """
    most = max(fastest, key=lambda pair: pair[1].samples_per_s, default=None)
    if not space.confirm_alone or goal.metric != "goodput" or most is None:
        return fastest
    usual = closest([pair for pair in pairs if not _has_extra(pair[0].candidate, space)], goal)
    best = max(usual, key=lambda pair: pair[1].samples_per_s, default=None)
    # The best of the usual ones, not any: one that is slower by far may have an interval that holds everything.
    if best is None or differ(best[1].samples_per_s, best[1].ci95, most[1].samples_per_s, most[1].ci95):
        return fastest
    return usual


def _faster_by_chance(best: Pair, pairs: Sequence[Pair], goal: Goal, space: Space) -> list[str]:
    """What was faster than the recommended candidate of a script, and was not chosen because chance may explain it."""
    if not space.confirm_alone or goal.metric != "goodput" or meets(best[1], goal):
        return []
    rate = best[1].samples_per_s
    faster = [pair for pair in pairs if _has_extra(pair[0].candidate, space)
              and pair[1].samples_per_s > (1 + SAME_RATE) * rate]  # fmt: skip
    if _has_extra(best[0].candidate, space) or not faster:
        return []
    outcome, m = max(faster, key=lambda pair: pair[1].samples_per_s)
    return [
        f"{describe(outcome.candidate)} was {100 * (m.samples_per_s / rate - 1):.0f} % faster, which chance may "
        "explain: more workers than cores and a deeper prefetch seldom help where cores are short"
    ]


def _has_extra(candidate: Candidate, space: Space) -> bool:
    """Whether it has more workers than there are cores, or a deeper prefetch than its worker count is tried with; what
    the user has counts as usual."""
    if candidate == space.untuned:
        return False
    cores, workers = space.usable_cores, candidate.num_workers
    return (cores is not None and space.ranks * workers > max(space.ranks, cores)) or (
        workers > 0 and candidate.prefetch_depth > space.depth_of(candidate.backend, workers)
    )


def _as_good_confirmed(fastest: list[Pair], pairs: Sequence[Pair], goal: Goal, space: Space) -> list[Pair]:
    """The fastest; or, of a script's candidates, those near the fastest one that a fresh start has confirmed, where the
    others' rates differ from its by no more than chance explains.

    Why: the rate in a fresh start lies below that which a candidate was chosen for. The next best one would then seem
    to be the fastest, and cost another start of the script, and so on.
    """
    confirmed = [pair for pair in pairs if pair[0].block and not pair[0].forked]
    changed = [m for outcome, m in confirmed if outcome.candidate != space.untuned]
    if not space.confirm_alone or goal.metric != "goodput" or not changed:
        return fastest
    most = max(changed, key=lambda m: m.samples_per_s)
    extra = {outcome.candidate.key for outcome, m in confirmed if m is most and _has_extra(outcome.candidate, space)}
    if extra and not any(_has_extra(outcome.candidate, space) for outcome, _ in fastest):
        return fastest  # which chance does not favour: one more fresh start
    if any(differ(m.samples_per_s, m.ci95, most.samples_per_s, most.ci95) for _, m in fastest):
        return fastest
    return [pair for pair in confirmed if pair[1].samples_per_s >= (1 - SAME_RATE) * most.samples_per_s]


def _simplicity(candidate: Candidate) -> tuple[int, int, int]:
    """Workers, settings off their default, prefetch depth; the smallest is the simplest."""
    off_default = sum(
        getattr(candidate, name) != setting.default and has_effect(setting, candidate)
        for name, setting in SETTINGS.items()
    )
    return candidate.num_workers, off_default, candidate.prefetch_depth


def eligible(outcomes: Iterable[Outcome], goal: Goal, space: Space) -> list[Pair]:
    """Measured candidates that may be recommended: of the space, and within the memory limit.

    The baseline, which is measured in any case, is among them only if the user's options include it or nothing else
    worked.
    """
    measured = [(outcome, outcome.measurement) for outcome in outcomes if outcome.measurement]
    limit = goal.most_memory_bytes
    small = [pair for pair in measured if limit is None or (pair[1].pss_bytes or 0) <= limit]
    allowed = [pair for pair in small if space.has(as_in_space(pair[0].candidate, space))]
    return allowed or [pair for pair in small if pair[0].candidate == baseline(space)]


def includes_baseline(space: Space) -> bool:
    """Whether the user's options include the baseline; it is measured in any case."""
    return space.has(as_in_space(baseline(space), space))


def as_in_space(candidate: Candidate, space: Space) -> Candidate:
    """The candidate with the space's pinned memory: the baseline never pins, as PyTorch does not by default."""
    return replace(candidate, pin_memory=space.pin_memory)
