"""From measurements of the parts to the cost of each stage, with intervals. Pure.

Each part is measured once in every block, so what changes from block to block (a machine that slows down) changes all
of them. What remains scatters by a share of the value that dear parts have in common and cheap ones, which are mostly
fixed costs, have in common; each is estimated from all its parts together (two-way layout without interaction; Cochran
and Cox, "Experimental Designs", ch. 4), so that a few blocks suffice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from pipetune.records.explanation import (
    ACCELERATOR,
    COLLATE,
    FETCH,
    LOOP,
    STAGES,
    TRANSFER,
    WITH_ACCELERATOR,
    Part,
    StageCost,
)
from pipetune.records.sweep import Measurement, Outcome
from pipetune.stats.intervals import mean, t95
from pipetune.stats.noise import PRIOR

#: A part that costs less than this share of the dearest one is a cheap one.
_CHEAP = 0.2
#: With fewer degrees of freedom, scatter is estimated together with what is usual (:data:`pipetune.stats.noise.PRIOR`).
_ENOUGH_FREEDOM, _PRIOR_FREEDOM = 4, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Scatter:
    """How much the measurements of a part scatter."""

    relative: float
    """Relative standard deviation of one measurement."""
    freedom: float
    """Degrees of freedom of its estimate."""

    def half(self, mean: float, count: int) -> float:
        """Half-width of the 95 % interval of a mean of that many measurements."""
        return t95(self.freedom) * self.relative * abs(mean) / math.sqrt(max(1, count))


def parts_of(outcomes: Sequence[Outcome]) -> tuple[Part, ...]:
    """What was measured of each part, in the order in which they were first measured; failures are left out."""
    found = _by_part(outcomes)
    rates = scatters({name: _values(by, lambda m: m.samples_per_s) for name, by in found.items()}, cheap=0.0)
    costs = _cost_scatters(found)
    parts = []
    for name, by_block in found.items():
        measured = list(by_block.values())
        rate = fmean(m.samples_per_s for m in measured)
        cost = mean(m.cpu_s_per_1000_samples for m in measured)
        cost_ci95 = None if cost is None else _around(cost, costs[name], len(measured))
        half = rates[name].half(rate, len(measured))
        parts.append(
            Part(
                name=name, samples_per_s=rate, rate_ci95=(max(0.0, rate - half), rate + half),
                cpu_s_per_1000_samples=cost, cpu_ci95=cost_ci95,
                cores_used=mean(m.cores_used for m in measured),
                bytes_per_sample=mean(m.read_bytes_per_sample for m in measured), measurements=len(measured),
            )
        )  # fmt: skip
    return tuple(parts)


def stage_costs(outcomes: Sequence[Outcome], parts: Sequence[Part], *, in_place: bool) -> tuple[StageCost, ...]:
    """What each stage adds, in the order in which a sample passes them.

    Args:
        outcomes: of which the parts are.
        in_place: nothing is collated.
    """
    by_name = {part.name: part for part in parts if part.cpu_s_per_1000_samples is not None}
    costs = _cost_scatters(_by_part(outcomes))
    stages = [stage for stage in STAGES if not (in_place and stage == COLLATE)]
    firsts = [stage for stage in stages if stage in by_name]
    found = []
    for first, after in zip(firsts, [*firsts[1:], None], strict=True):
        end = len(stages) if after is None else stages.index(after)
        with_it = by_name[first]
        without = None if after is None else by_name[after]
        cost = (with_it.cpu_s_per_1000_samples or 0.0) - (
            0.0 if without is None else without.cpu_s_per_1000_samples or 0
        )
        halves = [costs[part.name].half(part.cpu_s_per_1000_samples or 0.0, part.measurements)
                  for part in (with_it, without) if part is not None]  # fmt: skip
        half = math.hypot(*halves)
        found.append(
            StageCost(
                stages=tuple(stages[stages.index(first) : end]), cpu_s_per_1000_samples=cost,
                ci95=(cost - half, cost + half), samples_per_s=with_it.samples_per_s, rate_ci95=with_it.rate_ci95,
            )
        )  # fmt: skip
    return tuple(found)


def closure(parts: Sequence[Part]) -> float | None:
    """By which share the stages together, which are the loader alone, differ from the loader beside the accelerator."""
    by_name = {part.name: part.cpu_s_per_1000_samples for part in parts}
    alone, whole = by_name.get(FETCH), by_name.get(WITH_ACCELERATOR)
    return alone / whole - 1 if alone is not None and whole else None


def scatters(values: Mapping[str, Mapping[int, float]], *, cheap: float) -> dict[str, Scatter]:
    """The scatter of each part's values.

    Args:
        values: part -> block -> value; parts may lack blocks.
        cheap: parts whose mean is less than this share of the greatest have a scatter of their own in common.
    """
    means = {name: fmean(by.values()) for name, by in values.items() if by and fmean(by.values()) > 0}
    most = max(means.values(), default=0.0)
    dear = {name for name, usual in means.items() if usual >= cheap * most}
    deviations = {name: {block: value / means[name] - 1 for block, value in values[name].items()} for name in means}
    blocks = {block for name in dear for block in values[name]}
    # Where one part is all that is dear, what a block changes cannot be told from chance.
    of_block = {
        block: fmean(deviations[name][block] for name in dear if block in deviations[name]) if len(dear) > 1 else 0.0
        for block in blocks
    }
    found = {}
    for group, fixed in ((dear, len(of_block) if len(dear) > 1 else 0), (set(means) - dear, 0)):
        rest = [deviation - of_block.get(block, 0.0) for name in group for block, deviation in deviations[name].items()]
        # Each part's mean, and each block's but one, were taken from the values.
        freedom = len(rest) - len(group) - max(0, fixed - 1)
        scatter = _pooled(sum(one**2 for one in rest), freedom)
        found.update(dict.fromkeys(group, scatter))
    unknown = _pooled(0.0, 0)
    return {name: found.get(name, unknown) for name in values}


def _pooled(squares: float, freedom: int) -> Scatter:
    if freedom >= _ENOUGH_FREEDOM:
        return Scatter(relative=math.sqrt(squares / freedom), freedom=freedom)
    total = max(0, freedom) + _PRIOR_FREEDOM
    return Scatter(
        relative=math.sqrt(((squares if freedom > 0 else 0.0) + _PRIOR_FREEDOM * PRIOR**2) / total), freedom=total
    )


def _by_part(outcomes: Sequence[Outcome]) -> dict[str, dict[int, Measurement]]:
    """Part -> block -> its newest measurement there."""
    found: dict[str, dict[int, Measurement]] = {}
    for outcome in outcomes:
        if outcome.part is not None and outcome.measurement is not None:
            found.setdefault(outcome.part, {})[outcome.block] = outcome.measurement
    return found


def _cost_scatters(found: Mapping[str, Mapping[int, Measurement]]) -> dict[str, Scatter]:
    # The training loop's own CPU time is no part of the loader's.
    loaders = {name: by for name, by in found.items() if name not in (ACCELERATOR, LOOP, TRANSFER)}
    values = {name: _values(by, lambda m: m.cpu_s_per_1000_samples) for name, by in loaders.items()}
    return {**dict.fromkeys(found, _pooled(0.0, 0)), **scatters(values, cheap=_CHEAP)}


def _values(
    by_block: Mapping[int, Measurement], value: Callable[[Measurement], float | None]
) -> dict[int, float]:  # fmt: skip
    return {block: found for block, m in by_block.items() if (found := value(m)) is not None}


def _around(value: float, scatter: Scatter, count: int) -> tuple[float, float]:
    half = scatter.half(value, count)
    return value - half, value + half
