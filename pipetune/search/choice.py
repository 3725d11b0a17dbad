"""Which candidate to recommend: the cheapest that suffices, and what speaks against being sure. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from pipetune.candidates.settings import SETTINGS, has_effect
from pipetune.candidates.space import Space
from pipetune.records.sweep import Candidate, Goal, Measurement, Outcome
from pipetune.registry import find_backend
from pipetune.search.pooled import (
    CHANGED_SPEED,
    achieved,
    at_present_speed,
    cores_of,
    known,
    latest,
    meets,
    present_speed,
    speed_of,
    straddles,
)
from pipetune.stats.noise import difference_by_chance, run_noise

#: Differences up to this (cores; and a twentieth of larger counts) and this share of memory are no differences. Nor are
#: differences in cores of one standard deviation, as much as repetitions of a candidate scatter on this machine. Memory
#: depends on how full the queues happen to be: four measurements of one candidate gave 587 to 663 MiB.
SAME_CORES = 0.15
SAME_CORES_SHARE = 0.05
SAME_MEMORY = 0.10
#: Deviations of pixels (dB) that differ by less are the same.
SAME_PIXELS_DB = 3.0
#: Rates within this share of each other are the same where nothing suffices.
SAME_RATE = 0.02
#: Cores of other processes that are worth telling: a shared machine's background uses less.
OTHER_LOAD = 0.3
#: The recommended candidate is what tells, at the end, whether the machine still is what it was (the fixed decode loop
#: does not see all of that): its rates may differ by this share.
OFF_FIRST = 0.15
_EQUAL_DB = 100.0
#: Relative standard deviation of the CPU time per image between repetitions of two seconds, even where the fixed decode
#: loop hardly scatters: 0.08 over 20 measurements of seven candidates in two sweeps of a shared machine with 2 cores.
#: What seems cheaper by so little is looked at again.
CPU_NOISE = 0.08

Pair = tuple[Outcome, Measurement]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What is recommended."""

    outcome: Outcome
    ties: tuple[Outcome, ...]
    """Others that cannot be told from it by what it was chosen for: the first cost in which there are differences, or
    the rate where nothing suffices; and others that are dearer by no more than chance may have made them."""
    doubts: tuple[str, ...]
    """Why another candidate might be the right one; empty: nothing speaks for that."""


def cheapest(outcomes: Iterable[Outcome], goal: Goal, space: Space) -> Outcome | None:
    """The cheapest candidate of the space that meets the goal; if none does, the cheapest of those that come nearest.

    The baseline is measured whatever the user listed, but recommended only where it was listed or nothing else worked.

    Cheapest: as ``goal.cheapest`` has it, then fewest workers, fewest settings that are not as usual, and smallest
    prefetch depth. What differs by less than measurements of the same candidate do counts as equal, so that chance does
    not decide over the next criterion; of equals, those come first that reach the target for sure.

    Args:
        outcomes: one per candidate (see :func:`pipetune.search.pooled.known`).
    """
    outcomes = list(outcomes)
    noise, pairs = noise_of(outcomes), listed(outcomes, goal, space)
    enough = [pair for pair in pairs if meets(pair[1], goal)]
    suffices = bool(enough)
    if not suffices:
        enough = _nearest(pairs, goal)
    for name in goal.cheapest:
        enough = _least(enough, CRITERIA[name], space, noise)
        if suffices and name in ("cores", "memory"):
            enough = [pair for pair in enough if not straddles(pair[1], goal)] or enough
    first = min(enough, key=lambda pair: _plainness(pair[0].candidate), default=None)
    return first[0] if first else None


def _plainness(candidate: Candidate) -> tuple[int, int, int]:
    unusual = sum(
        getattr(candidate, name) != setting.default and has_effect(setting, candidate)
        for name, setting in SETTINGS.items()
    )
    return candidate.num_workers, unusual, candidate.prefetch_depth


def choose(outcomes: Sequence[Outcome], goal: Goal, space: Space) -> Choice | None:
    """The recommended candidate with its ties and doubts.

    Chosen from what the candidates would do at the machine's present speed; where what was measured of the chosen one
    says otherwise about the target, from what was measured.
    """
    seen, measured = known(outcomes, goal), latest(outcomes)
    best = cheapest(seen.values(), goal, space)
    if best is None or best.measurement is None:
        return None
    doubts: list[str] = []
    as_measured = measured[best.candidate.key].measurement
    if as_measured is None or meets(as_measured, goal) != meets(best.measurement, goal):
        now, seen = best.candidate, measured
        best = cheapest(seen.values(), goal, space)
        if best is None or best.measurement is None:
            return None
        if now != best.candidate:
            doubts.append(f"at the machine's present speed {now.key} may be the better choice")
    pairs = listed(seen.values(), goal, space)
    enough = [pair for pair in pairs if meets(pair[1], goal)]
    assert best.measurement is not None
    if enough:
        noise, own = noise_of(seen.values()), (best, best.measurement)
        same = {outcome.candidate.key for outcome, _ in _equally_cheap(enough, goal, space, noise)}
        for pair in enough:
            if is_in_doubt(own, pair, goal, space, noise, looks=common_blocks(outcomes, best, pair[0])):
                same.add(pair[0].candidate.key)
    else:
        same = {outcome.candidate.key for outcome, _ in _nearest(pairs, goal)}
    ties = tuple(o for o, _ in pairs if o.candidate.key in same and o.candidate != best.candidate)
    doubts += _doubts(best, best.measurement, pairs, outcomes, goal, space)
    return Choice(outcome=best, ties=ties, doubts=tuple(doubts))


def noise_of(outcomes: Iterable[Outcome]) -> float:
    """Relative standard deviation of repetitions on this machine (see :func:`pipetune.stats.noise.run_noise`)."""
    return run_noise(outcome.measurement for outcome in outcomes)


def listed(outcomes: Iterable[Outcome], goal: Goal, space: Space) -> list[Pair]:
    """Those that were measured and may be recommended."""
    measured = [(outcome, outcome.measurement) for outcome in outcomes if outcome.measurement]
    most = goal.most_memory_bytes
    small = [pair for pair in measured if most is None or (pair[1].pss_bytes or 0) <= most]
    return [pair for pair in small if space.has(as_listed(pair[0].candidate, space))] or small


def as_listed(candidate: Candidate, space: Space) -> Candidate:
    """The baseline does not pin memory, as PyTorch does not by default; otherwise it may be a point of the space."""
    return replace(candidate, pin_memory=space.pin_memory)


def is_cheaper(one: Pair, other: Pair, goal: Goal, space: Space, noise: float) -> bool:
    """The first is clearly cheaper in the first criterion in which the two differ."""
    for name in goal.cheapest:
        criterion = CRITERIA[name]
        ours, theirs = criterion.value(*one, space), criterion.value(*other, space)
        if abs(ours - theirs) > criterion.slack(min(ours, theirs), noise):
            return ours < theirs
    return False


def is_in_doubt(one: Pair, other: Pair, goal: Goal, space: Space, noise: float, *, looks: int = 1) -> bool:
    """Whether chance may have decided which of the two is the cheaper one.

    The first difference between them that counts is then one that repetitions of a candidate make, too (95 %).

    Args:
        looks: so often both were measured side by side.
    """
    chance = difference_by_chance(max(noise, CPU_NOISE), max(1, looks))
    for name in goal.cheapest:
        criterion = CRITERIA[name]
        values = [criterion.value(*pair, space) for pair in (one, other)]
        apart, least = abs(values[0] - values[1]), min(values)
        if apart > criterion.slack(least, noise):
            return apart <= criterion.slack(least, chance)
    return False


def common_blocks(outcomes: Iterable[Outcome], one: Outcome, other: Outcome) -> int:
    """In how many blocks both candidates were measured."""
    found: dict[str, set[int]] = {one.candidate.key: set(), other.candidate.key: set()}
    for outcome in outcomes:
        if outcome.block and outcome.measurement and outcome.candidate.key in found:
            found[outcome.candidate.key].add(outcome.block)
    return len(set.intersection(*found.values()))


def cores_decide(one: Candidate, other: Candidate, goal: Goal, space: Space) -> bool:
    """Whether the first is no dearer than the second in what counts more than cores, as far as that is known."""
    for name in goal.cheapest:
        if name == "cores":
            return goal.most_memory_bytes is None
        if name == "memory":
            return False
        values = [CRITERIA[name].of_backend(candidate.backend, space) for candidate in (one, other)]
        if values[0] > values[1] + CRITERIA[name].slack(values[1], 0.0):
            return False
    return False


def cores_slack(cores: float, noise: float) -> float:
    """Cores that make no difference to so many, where repetitions scatter by ``noise`` (relative)."""
    return max(SAME_CORES, SAME_CORES_SHARE * cores, noise * cores)


@dataclass(frozen=True, slots=True, kw_only=True)
class Criterion:
    """Something that costs."""

    value: Callable[[Outcome, Measurement, Space], float]
    slack: Callable[[float, float], float]
    """How much more than the least is no difference; the second argument is the machine's noise."""
    about: str
    of_backend: Callable[[str, Space], float] = lambda backend, space: 0.0
    """The value where the backend alone decides it."""


def _pixels(backend: str, space: Space) -> float:
    deviation = find_backend(backend).deviation
    return 0.0 if deviation is None else _EQUAL_DB - min(_EQUAL_DB, deviation.psnr_db)


def _decodes(backend: str, space: Space) -> float:
    return float(backend in space.accelerator_decodes)


#: What ``--cheapest`` may name.
CRITERIA: dict[str, Criterion] = {
    "accelerator": Criterion(
        value=lambda outcome, _, space: _decodes(outcome.candidate.backend, space), of_backend=_decodes,
        slack=lambda least, noise: 0.0, about="decoding on the accelerator, which has a model to train",
    ),
    "cores": Criterion(value=lambda outcome, m, _: cores_of(outcome, m), slack=cores_slack, about="CPU cores in use"),
    "memory": Criterion(
        value=lambda _, m, __: math.inf if m.pss_bytes is None else m.pss_bytes,
        slack=lambda least, noise: SAME_MEMORY * least, about="memory (PSS)",
    ),
    "pixels": Criterion(
        value=lambda outcome, _, space: _pixels(outcome.candidate.backend, space), of_backend=_pixels,
        slack=lambda least, noise: SAME_PIXELS_DB, about="deviation from Pillow's pixels",
    ),
}  # fmt: skip


def _least(pairs: Sequence[Pair], criterion: Criterion, space: Space, noise: float) -> list[Pair]:
    if not pairs:
        return []
    values = [criterion.value(*pair, space) for pair in pairs]
    most = min(values) + criterion.slack(min(values), noise)
    return [pair for pair, value in zip(pairs, values, strict=True) if value <= most]


def _equally_cheap(pairs: Sequence[Pair], goal: Goal, space: Space, noise: float) -> Sequence[Pair]:
    """What is left after the first criterion in which they differ by degrees."""
    for name in goal.cheapest:
        left = _least(pairs, CRITERIA[name], space, noise)
        if len(left) < len(pairs) and name != "accelerator":
            return left
        pairs = left
    return pairs


def _nearest(pairs: Sequence[Pair], goal: Goal) -> list[Pair]:
    shares = [achieved(m, goal) or 0.0 for _, m in pairs]
    best = max(shares, default=0.0)
    if best <= 0:
        fastest = max((m.samples_per_s for _, m in pairs), default=0.0)
        return [pair for pair in pairs if pair[1].samples_per_s >= (1 - SAME_RATE) * fastest]
    return [pair for pair, share in zip(pairs, shares, strict=True) if share >= (1 - SAME_RATE) * best]


def _doubts(
    best: Outcome,
    measurement: Measurement,
    pairs: Sequence[Pair],
    outcomes: Sequence[Outcome],
    goal: Goal,
    space: Space,
) -> Iterable[str]:
    noise = noise_of(outcomes)
    low, high = measurement.goodput_ci95 or (math.nan, math.nan)
    if straddles(measurement, goal):
        may = "may miss" if meets(measurement, goal) else "may yet reach"
        yield f"its goodput lies between {low:.2f} and {min(1.0, high):.2f}: it {may} the target of {goal.target:g}"
    for outcome, m in pairs if meets(measurement, goal) else ():
        dearer = (best, measurement)
        if not meets(m, goal) and straddles(m, goal) and is_cheaper((outcome, m), dearer, goal, space, noise):
            yield f"{outcome.candidate.key} is cheaper, and may just reach the target"
    again = [o for o in at_present_speed(outcomes) if o.candidate == best.candidate and o.role != "ceiling"]
    first = [o.measurement.samples_per_s for o in again if o.measurement and not o.block and o.role != "baseline"]
    beside = [o.measurement.samples_per_s for o in again if o.measurement and o.block]
    if first and beside and abs(fmean(beside) / first[-1] - 1) > max(OFF_FIRST, difference_by_chance(noise)):
        yield (
            f"it made {first[-1]:.0f}/s when first measured and {fmean(beside):.0f}/s beside its rivals: the machine "
            "is not what it was for the others"
        )
    if goal.most_memory_bytes is not None and measurement.pss_bytes is None:
        yield "its memory could not be read: whether --max-ram is kept is not known"
    failed = [o.failure.kind for o in again if o.failure]
    if failed:
        yield f"it failed in {len(failed)} of {len(again)} measurements ({failed[-1]})"
    disturbed = [o.measurement for o in outcomes if o.measurement and (o.measurement.other_cores or 0) >= OTHER_LOAD]
    if disturbed:
        worst = max(disturbed, key=lambda m: m.other_cores or 0)
        yield (
            f"during {len(disturbed)} of {len(outcomes)} measurements other processes used {OTHER_LOAD:g} cores or "
            f"more, up to {worst.other_cores:.1f} ({worst.other_process})"
        )
    now = present_speed(outcomes)
    change = 0.0 if now is None else now / speed_of(measurement) - 1
    if abs(change) > CHANGED_SPEED:
        yield f"the machine's speed has changed by {100 * change:+.0f} % since it was measured"
