"""Intervals of gains on machines on paper, where the truth is known, of loaders that compute and of those that wait."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from statistics import median

import pytest

from pipetune.records.edit import FASTER, Edit
from pipetune.records.sweep import Candidate, Outcome
from pipetune.search.proof import judge_edit
from tests.unit.search.test_proof import OTHER, OWN, SPACE, look

SWEEPS, RATE = 150, 400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """How measurements scatter."""

    felt: float
    """Share of the time in which the loader is on a core or waits for one."""
    load: float
    """Scatter of the logarithm of the machine's speed, half of which lasts from one measurement to the next."""
    scatter: float = 0.02
    """Scatter of rates that the speed does not explain."""
    disturbed: float = 0.0
    """Probability that a measurement loses a fifth to three fifths of its rate, for no reason that anything shows."""
    blocks: int = 3


COMPUTES, WAITS = World(felt=1.0, load=0.02), World(felt=0.05, load=0.02)
WORLDS = {
    "computes": COMPUTES,
    "computes beside other programs": replace(COMPUTES, load=0.3),
    "computes, other programs for moments": replace(COMPUTES, disturbed=0.1),
    "half and half, beside other programs": replace(COMPUTES, felt=0.5, load=0.3),
    "waits": WAITS,
    "waits beside other programs": replace(WAITS, load=0.3),
    "waits, other programs for moments": replace(WAITS, load=0.3, disturbed=0.1),
    "waits for something restless": replace(WAITS, scatter=0.15),
    "waits, one block": replace(WAITS, load=0.3, blocks=1),
}


def sweep(world: World, gain: float, seed: int) -> Edit:
    """First looks at four candidates, and blocks of the script and the one in question."""
    draw, log_speed = random.Random(seed), 0.0

    def measure(candidate: Candidate, rate: float, block: int = 0) -> Outcome:
        nonlocal log_speed
        log_speed = 0.5 * log_speed + draw.gauss(0, world.load * math.sqrt(0.75))
        rate *= math.exp(world.felt * log_speed + draw.gauss(0, world.scatter))
        if draw.random() < world.disturbed:
            rate *= draw.uniform(0.4, 0.8)
        before, after = (100 * math.exp(log_speed + draw.gauss(0, 0.05 + world.load / 4)) for _ in range(2))
        felt = min(1.0, world.felt * draw.uniform(0.8, 1.2))
        return look(
            candidate, rate, 0.2, block, machine_speed_before=before, machine_speed_after=after,
            cores_used=felt / 2, run_delay_frac=felt / 2, within_error_frac=0.01, accelerator_idle_frac=0.5,
        )  # fmt: skip

    outcomes = [measure(OWN, RATE)]
    outcomes += [measure(replace(OWN, num_workers=count), RATE * draw.uniform(0.7, 1.2)) for count in (1, 3)]
    outcomes.append(measure(OTHER, RATE * gain))
    for block in range(1, world.blocks + 1):
        members = [(OWN, RATE), (OTHER, RATE * gain)]
        draw.shuffle(members)
        outcomes += [measure(candidate, rate, block) for candidate, rate in members]
    edit = judge_edit(OTHER, outcomes, SPACE)
    assert edit is not None
    return edit


def half_of(edit: Edit) -> float:
    return math.log(edit.gain_ci95[1] / edit.gain)


@pytest.mark.parametrize("name", WORLDS)
def test_intervals_cover_the_truth(name: str) -> None:
    """At 95 %; of 150 sweeps that leaves a standard error of 2 %."""
    edits = [sweep(WORLDS[name], 1.0, seed) for seed in range(SWEEPS)]
    assert sum(edit.gain_ci95[0] <= 1.0 <= edit.gain_ci95[1] for edit in edits) >= 0.92 * SWEEPS
    assert sum(edit.verdict == FASTER for edit in edits) <= 0.05 * SWEEPS, "as benchmarks/search/edits.py promises"


def test_what_waits_is_as_sure_beside_other_programs_as_on_a_quiet_machine() -> None:
    quiet, loaded = (
        median(half_of(sweep(WORLDS[name], 1.3, seed)) for seed in range(SWEEPS))
        for name in ("waits", "waits beside other programs")
    )
    assert quiet < 0.1
    assert loaded < 1.2 * quiet
    computing = median(half_of(sweep(WORLDS["computes beside other programs"], 1.3, seed)) for seed in range(SWEEPS))
    assert computing > 3 * loaded, "its rate does follow the speed"


def test_a_gain_is_found_in_most_sweeps_though_a_block_is_disturbed() -> None:
    """In about half of these sweeps at least one of six measurements is."""
    edits = [sweep(WORLDS["waits, other programs for moments"], 1.3, seed) for seed in range(SWEEPS)]
    assert sum(edit.verdict == FASTER for edit in edits) > 0.6 * SWEEPS
