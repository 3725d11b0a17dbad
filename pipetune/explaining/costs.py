"""From measurements of the parts to the cost of each stage, with intervals. Pure.

Each part is measured once in every block, so what changes from block to block (a machine that slows down) changes all
of them. A stage is the difference of two parts in the same blocks. What remains scatters by a share of the value that
dear parts have in common, and cheap ones, which are mostly fixed costs, have in common; each is estimated from all its
parts together (two-way layout without interaction; Cochran and Cox, "Experimental Designs", ch. 4), so that a few
blocks suffice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, variance

from pipetune.records.explanation import (
    ACCELERATOR,
    AUGMENTING,
    COLD,
    COLLATE,
    DECODE,
    FETCH,
    LOOP,
    ON_DEVICE,
    READING,
    STAGES,
    STORAGE,
    TRANSFER,
    WITH_ACCELERATOR,
    Part,
    StageCost,
)
from pipetune.records.sweep import Measurement, Outcome
from pipetune.stats.intervals import mean, t95
from pipetune.stats.noise import DEVICE_PRIOR, PRIOR

#: A part that costs less than this share of the dearest one is a cheap one.
_CHEAP = 0.2
#: With fewer degrees of freedom, scatter is estimated together with what is usual (:data:`pipetune.stats.noise.PRIOR`).
_ENOUGH_FREEDOM, _PRIOR_FREEDOM = 4, 3
#: Parts whose pace the accelerator or the disk sets, which scatter in ways of their own.
_OF_ACCELERATOR, _OF_STORAGE = (ACCELERATOR, LOOP, TRANSFER, ON_DEVICE), (COLD, STORAGE)

#: Part -> block -> its newest measurement there.
Measured = Mapping[str, Mapping[int, Measurement]]
#: Part -> block -> a value.
Values = Mapping[str, Mapping[int, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scatter:
    """How much the measurements of a part scatter."""

    relative: float
    """Relative standard deviation of one measurement within a block."""
    freedom: float
    """Degrees of freedom of its estimate."""
    between: float = 0.0
    """Relative standard deviation of what blocks change in all parts."""
    least: float = 0.0
    """Smallest value that the share is taken of: one that was measured as 0 is not known exactly."""

    def half(self, value: float, count: int, *, blocks: bool = False) -> float:
        """Half-width of the 95 % interval of a mean of that many measurements.

        Args:
            blocks: what blocks change counts, too; it does not where values of the same blocks are compared.
        """
        relative = math.hypot(self.relative, self.between if blocks else 0.0)
        return t95(self.freedom) * relative * max(abs(value), self.least) / math.sqrt(max(1, count))


def parts_of(outcomes: Sequence[Outcome]) -> tuple[Part, ...]:
    """What was measured of each part, in the order in which they were first measured; failures are left out."""
    found = _by_part(outcomes)
    rates = _rate_scatters(found)
    costs = _cost_scatters(found)
    parts = []
    for name, by_block in found.items():
        measured = list(by_block.values())
        rate, count = fmean(m.samples_per_s for m in measured), len(measured)
        cost = mean(m.cpu_s_per_1000_samples for m in measured)
        half = rates[name].half(rate, count, blocks=True)
        parts.append(
            Part(
                name=name, samples_per_s=rate, rate_ci95=(max(0.0, rate - half), rate + half),
                cpu_s_per_1000_samples=cost,
                cpu_ci95=None if cost is None else _around(cost, costs[name].half(cost, count, blocks=True)),
                cores_used=mean(m.cores_used for m in measured),
                bytes_per_sample=mean(m.read_bytes_per_sample for m in measured), measurements=count,
            )
        )  # fmt: skip
    return tuple(parts)


def stage_costs(
    outcomes: Sequence[Outcome], *, in_place: bool, augmenting: Collection[str] = ()
) -> tuple[StageCost, ...]:
    """What each stage adds, in the order in which a sample passes them. Reading is what it takes by itself.

    Args:
        outcomes: of the parts.
        in_place: nothing is collated.
        augmenting: stages of :data:`pipetune.records.explanation.AUGMENTING` that the loader has.
    """
    found = _by_part(outcomes)
    costs, rates = _costs(found), _rates(found)
    scatter, rate_scatter = _cost_scatters(found), _rate_scatters(found)
    left_out = {*AUGMENTING} - {*augmenting} | ({COLLATE} if in_place else set())
    stages = [stage for stage in STAGES if stage not in left_out]
    firsts = [stage for stage in stages if costs.get(stage)]
    made = []
    for number, first in enumerate(firsts):
        after = firsts[number + 1] if number + 1 < len(firsts) else None
        end = len(stages) if after is None else stages.index(after)
        with_it, without = costs[first], {} if after is None else costs[after]
        # Where no block has both, what a block changes cannot be left out.
        common = with_it.keys() & without.keys()
        whole, rest = _mean_in(with_it, common or with_it), _mean_in(without, common or without)
        half = math.hypot(
            scatter[first].half(whole, len(common or with_it)),
            0.0 if after is None else scatter[after].half(rest, len(common or without)),
        )
        if (first, after) == (FETCH, DECODE) and costs.get(READING):
            # A difference of two large numbers would say little of it.
            whole, rest = _mean_in(costs[READING], costs[READING]), 0.0
            half = scatter[READING].half(whole, len(costs[READING]))
        rate = fmean(rates[first].values())
        made.append(
            StageCost(
                stages=tuple(stages[stages.index(first) : end]), cpu_s_per_1000_samples=whole - rest,
                ci95=_around(whole - rest, half), samples_per_s=rate,
                rate_ci95=_around(rate, rate_scatter[first].half(rate, len(rates[first]), blocks=True)),
            )
        )  # fmt: skip
    return tuple(made)


def closure(outcomes: Sequence[Outcome], *, cold: bool = False) -> float | None:
    """By which share CPU times that were measured apart differ together from that of the loader beside the accelerator.

    Reading alone, and the loader with the files' contents in memory, which are all stages. Where a loader cannot be
    divided, or its reading cannot be measured, it is all of it alone.

    Args:
        cold: the loader beside the accelerator has read its files from storage.
    """
    costs = _costs(_by_part(outcomes))
    apart = [COLD] if cold else [READING, DECODE] if costs.get(READING) and costs.get(DECODE) else [FETCH]
    if not all(costs.get(name) for name in (*apart, WITH_ACCELERATOR)):
        return None
    blocks: Collection[int] = set.intersection(*(set(costs[name]) for name in (*apart, WITH_ACCELERATOR)))
    total = sum(_mean_in(costs[name], blocks or costs[name]) for name in apart)
    whole = _mean_in(costs[WITH_ACCELERATOR], blocks or costs[WITH_ACCELERATOR])
    return total / whole - 1 if whole > 0 else None


def scatters(values: Values, *, cheap: float, prior: float = PRIOR) -> dict[str, Scatter]:
    """The scatter of each part's values.

    Args:
        values: parts may lack blocks.
        prior: what is usual, for which there are too few values.
        cheap: parts whose mean is less than this share of the greatest have a scatter of their own in common.
    """
    several = len({block for by_block in values.values() for block in by_block}) > 1
    means = {name: fmean(by.values()) for name, by in values.items() if by and fmean(by.values()) > 0}
    most = max(means.values(), default=0.0)
    # A part that was measured once does not differ from its own mean.
    telling = {name for name in means if not several or len(values[name]) > 1}
    least = min((means[name] for name in telling), default=0.0)
    dear = {name for name in telling if means[name] >= cheap * most}
    deviations = {name: {block: value / means[name] - 1 for block, value in values[name].items()} for name in means}
    # Where one part is all that is dear, what a block changes cannot be told from chance.
    of_block = _block_effects(deviations, dear) if len(dear) > 1 else {}
    between = math.sqrt(variance(of_block.values())) if len(of_block) > 1 else 0.0
    unknown = Scatter(relative=prior, freedom=_PRIOR_FREEDOM, between=between, least=least)
    found = dict.fromkeys(values, unknown)
    for group, fixed in ((dear, len(of_block)), (telling - dear, 0)):
        rest = [deviation - of_block.get(block, 0.0) for name in group for block, deviation in deviations[name].items()]
        # Each part's mean, and each block's but one, were taken from the values.
        freedom = len(rest) - len(group) - max(0, fixed - 1)
        found.update(dict.fromkeys(group, _pooled(sum(one**2 for one in rest), freedom, prior, between, least)))
    return found


def _block_effects(deviations: Values, parts: Collection[str]) -> dict[int, float]:
    blocks = {block for name in parts for block in deviations[name]}
    return {
        block: fmean(deviations[name][block] for name in parts if block in deviations[name]) for block in blocks
    }  # fmt: skip


def _pooled(squares: float, freedom: int, prior: float, between: float, least: float) -> Scatter:
    if freedom < _ENOUGH_FREEDOM:
        known = max(0, freedom)
        squares = (squares if known else 0.0) + _PRIOR_FREEDOM * prior**2
        freedom = known + _PRIOR_FREEDOM
    return Scatter(relative=math.sqrt(squares / freedom), freedom=freedom, between=between, least=least)


def _by_part(outcomes: Sequence[Outcome]) -> Measured:
    found: dict[str, dict[int, Measurement]] = {}
    for outcome in outcomes:
        if outcome.part is not None and outcome.measurement is not None:
            found.setdefault(outcome.part, {})[outcome.block] = outcome.measurement
    return found


def _rates(found: Measured) -> Values:
    return {name: _values(by, lambda m: m.samples_per_s) for name, by in found.items()}


def _costs(found: Measured) -> Values:
    return {name: _values(by, lambda m: m.cpu_s_per_1000_samples) for name, by in found.items()}


def _rate_scatters(found: Measured) -> dict[str, Scatter]:
    rates = _rates(found)
    loaders = [name for name in rates if name not in (*_OF_ACCELERATOR, *_OF_STORAGE)]
    scattered: dict[str, Scatter] = {}
    for group, prior in ((_OF_ACCELERATOR, DEVICE_PRIOR), (_OF_STORAGE, PRIOR), (loaders, PRIOR)):
        scattered |= scatters({name: rates[name] for name in group if name in rates}, cheap=0.0, prior=prior)
    return scattered


def _cost_scatters(found: Measured) -> dict[str, Scatter]:
    # The training loop's own CPU time is no part of the loader's.
    costs = _costs(found)
    own = {name: by for name, by in costs.items() if name in _OF_ACCELERATOR}
    loaders = {name: by for name, by in costs.items() if name not in own}
    return {**scatters(own, cheap=0.0), **scatters(loaders, cheap=_CHEAP)}


def _values(by_block: Mapping[int, Measurement], value: Callable[[Measurement], float | None]) -> dict[int, float]:
    return {block: found for block, m in by_block.items() if (found := value(m)) is not None}


def _mean_in(by_block: Mapping[int, float], blocks: Collection[int]) -> float:
    return fmean(by_block[block] for block in blocks if block in by_block) if by_block else 0.0


def _around(value: float, half: float) -> tuple[float, float]:
    return value - half, value + half
