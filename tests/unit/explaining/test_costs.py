from __future__ import annotations

from dataclasses import replace
from random import Random
from statistics import fmean

import pytest

from pipetune.explaining.costs import closure, parts_of, scatters, stage_costs
from pipetune.records.explanation import (
    ACCELERATOR,
    AUGMENT,
    AUGMENTING,
    COLLATE,
    DECODE,
    FETCH,
    HAND_OVER,
    LOOP,
    NORMALISE,
    READING,
    TRANSFORM,
    WITH_ACCELERATOR,
)
from pipetune.records.sweep import Outcome
from tests.unit.explaining.facts import measured, workers_bound
from tests.unit.samples import failed

TRUTH = {HAND_OVER: 0.02, COLLATE: 0.1, TRANSFORM: 0.33, DECODE: 0.97, FETCH: 1.0}


def run(seed: int, blocks: int = 3, between: float = 0.08, within: float = 0.03) -> list[Outcome]:
    """Parts as they are measured on a machine whose speed changes from block to block."""
    random = Random(seed)
    found = []
    for block in range(1, blocks + 1):
        slower = random.gauss(1, between)
        for name, cost in {**TRUTH, WITH_ACCELERATOR: 1.0}.items():
            found.append(measured(name, 1000, cost * slower * random.gauss(1, within), block))
    return found


def test_a_stage_costs_what_the_loader_with_it_costs_more() -> None:
    outcomes = workers_bound()
    stages = stage_costs(outcomes, in_place=False)
    assert [cost.stages for cost in stages] == [(FETCH,), (DECODE,), (TRANSFORM,), (COLLATE,), (HAND_OVER,)]
    costs = [cost.cpu_s_per_1000_samples for cost in stages]
    assert costs == pytest.approx([0.03, 0.64, 0.23, 0.08, 0.02])
    assert sum(costs) == pytest.approx(1.0)
    assert [cost.samples_per_s for cost in stages] == [2000, 2050, 6000, 20_000, 50_000]


def test_reading_is_what_it_takes_by_itself() -> None:
    stages = stage_costs([*workers_bound(), measured(READING, 9000.0, 0.025)], in_place=False)
    assert stages[0].cpu_s_per_1000_samples == pytest.approx(0.025)
    assert stages[0].ci95[1] - stages[0].ci95[0] < 0.02
    assert stages[0].samples_per_s == 2000  # the loader from here on
    assert stages[1].cpu_s_per_1000_samples == pytest.approx(0.64)


def test_stages_that_were_not_measured_apart_are_stated_together() -> None:
    outcomes = [one for one in workers_bound() if one.part not in (TRANSFORM, DECODE)]
    stages = stage_costs(outcomes, in_place=False)
    assert [cost.stages for cost in stages] == [(FETCH, DECODE, TRANSFORM), (COLLATE,), (HAND_OVER,)]


def test_augmenting_and_normalising_are_stages_of_loaders_that_augment() -> None:
    outcomes = [*workers_bound(), measured(AUGMENT, 8000.0, 0.25), measured(NORMALISE, 15_000.0, 0.15)]
    stages = stage_costs(outcomes, in_place=False, augmenting=AUGMENTING)
    costs = {cost.stages: cost.cpu_s_per_1000_samples for cost in stages}
    assert costs[TRANSFORM,] == pytest.approx(0.08)
    assert (costs[AUGMENT,], costs[NORMALISE,]) == (pytest.approx(0.1), pytest.approx(0.05))
    as_bytes = stage_costs(outcomes[:-1], in_place=False, augmenting=(AUGMENT,))
    assert [cost.stages for cost in as_bytes][2:4] == [(TRANSFORM,), (AUGMENT,)]
    assert sum(cost.cpu_s_per_1000_samples for cost in stages) == pytest.approx(1.0)


def test_a_loader_that_works_in_place_collates_nothing() -> None:
    outcomes = [one for one in workers_bound() if one.part not in (COLLATE, TRANSFORM)]
    stages = stage_costs(outcomes, in_place=True)
    assert [cost.stages for cost in stages] == [(FETCH,), (DECODE, TRANSFORM), (HAND_OVER,)]


def test_a_loader_that_cannot_be_divided_is_one_stage() -> None:
    outcomes = [one for one in workers_bound() if one.part in (FETCH, WITH_ACCELERATOR)]
    (only,) = stage_costs(outcomes, in_place=False)
    assert only.stages == (FETCH, DECODE, TRANSFORM, COLLATE, HAND_OVER)
    assert only.cpu_s_per_1000_samples == 1.0


def test_failures_count_for_nothing() -> None:
    outcomes = [*workers_bound(), replace(failed(), part=DECODE)]
    assert parts_of(outcomes) == parts_of(workers_bound())


def test_what_was_measured_apart_closes_with_the_loader_beside_the_accelerator() -> None:
    reading = measured(READING, 9000.0, 0.025)
    assert closure([*workers_bound(), reading]) == pytest.approx((0.97 + 0.025) / 1.01 - 1)
    assert closure(workers_bound()) == pytest.approx(1 / 1.01 - 1)  # a loader that cannot be divided
    assert closure(workers_bound(), cold=True) == pytest.approx(1.05 / 1.01 - 1)
    assert closure([one for one in workers_bound() if one.part != WITH_ACCELERATOR]) is None


def test_parts_are_compared_within_the_blocks_that_they_have_in_common() -> None:
    # An explanation that was stopped in its second block, in which the machine was half as fast.
    outcomes = [
        measured(FETCH, 1000, 1.0, 1), measured(DECODE, 1000, 0.97, 1), measured(DECODE, 1000, 1.94, 2),
        measured(HAND_OVER, 9000, 0.02, 1),
    ]  # fmt: skip
    fetch, decode, _ = stage_costs(outcomes, in_place=False)
    assert fetch.cpu_s_per_1000_samples == pytest.approx(0.03)
    assert decode.cpu_s_per_1000_samples == pytest.approx(0.95)


def test_a_part_that_was_measured_once_says_nothing_of_blocks() -> None:
    twice = {DECODE: {1: 1.0, 2: 1.2}, FETCH: {1: 1.1, 2: 1.32}}
    with_one = scatters({**twice, TRANSFORM: {1: 0.5}}, cheap=0.2)
    assert with_one[DECODE] == scatters(twice, cheap=0.2)[DECODE]


def test_what_was_measured_as_nothing_is_not_known_exactly() -> None:
    found = scatters({FETCH: {1: 1.0, 2: 1.1}, HAND_OVER: {1: 0.0, 2: 0.0}}, cheap=0.2)
    assert found[HAND_OVER].half(0.0, 2) > 0


def test_the_interval_of_a_part_holds_what_blocks_change() -> None:
    blocks = {
        name: {block: cost * slower for block, slower in enumerate((1, 1.3, 0.8))} for name, cost in TRUTH.items()
    }
    found = scatters({name: blocks[name] for name in (DECODE, FETCH, TRANSFORM)}, cheap=0.2)[DECODE]
    assert found.half(1.0, 3) < 1e-9
    assert found.half(1.0, 3, blocks=True) > 0.1


def test_an_accelerator_whose_rate_is_known_stays_so_beside_loaders_that_scatter() -> None:
    outcomes = [
        *(measured(ACCELERATOR, 5000.0, 0.001, block) for block in (1, 2, 3)),
        *(measured(LOOP, 90_000.0, 0.001, block) for block in (1, 2, 3)),
        *(measured(name, rate * slower, 1.0, block) for block, slower in ((1, 1.0), (2, 0.8), (3, 1.2))
          for name, rate in ((FETCH, 1000.0), (DECODE, 1100.0 * slower), (WITH_ACCELERATOR, 1000.0))),
    ]  # fmt: skip
    accelerator = next(part for part in parts_of(outcomes) if part.name == ACCELERATOR)
    assert accelerator.rate_ci95 == pytest.approx((5000.0, 5000.0), rel=0.02)


def test_what_a_block_changes_does_not_count_as_scatter() -> None:
    steady = {
        name: {block: cost * slower for block, slower in enumerate((1, 1.3, 0.8))} for name, cost in TRUTH.items()
    }
    found = scatters({name: steady[name] for name in (DECODE, FETCH, TRANSFORM)}, cheap=0.2)
    assert all(scatter.relative < 1e-9 for scatter in found.values())


@pytest.mark.slow
def test_the_interval_of_a_stage_holds_in_most_runs() -> None:
    held = []
    for seed in range(400):
        outcomes = run(seed)
        for cost in stage_costs(outcomes, in_place=False):
            if cost.stages[0] not in (DECODE, TRANSFORM):
                continue
            # What a block changes of all parts alike is not what the interval is about.
            slower = fmean(o.measurement.cpu_s_per_1000_samples or 0 for o in outcomes if o.measurement) / fmean(
                [*TRUTH.values(), 1.0]
            )
            truth = TRUTH[DECODE] - TRUTH[TRANSFORM] if cost.stages[0] == DECODE else TRUTH[TRANSFORM] - TRUTH[COLLATE]
            held.append(cost.ci95[0] <= truth * slower <= cost.ci95[1])
    assert 0.92 <= fmean(held) <= 1.0


def test_one_block_is_stated_with_what_is_usual() -> None:
    outcomes = run(1, blocks=1)
    (fetch, *_) = stage_costs(outcomes, in_place=False)
    assert fetch.ci95[0] < fetch.cpu_s_per_1000_samples < fetch.ci95[1]
    wide = parts_of(outcomes)[0]
    assert wide.rate_ci95[0] < wide.samples_per_s < wide.rate_ci95[1]
