"""What sweeps state covers the truth: phases, summary, noise and pooling together, where the truth is known."""

from __future__ import annotations

import random
from statistics import fmean

import pytest

from benchmarks.measuring.paper_sweeps import Stated, World, sweep

pytestmark = pytest.mark.slow

FED = {"kind": "cuda", "idle_frac": 0.0, "step_variation": 0.01}


@pytest.mark.parametrize(
    "world",
    [
        World(name="quiet", run_sd=0.03),
        World(name="shared", run_sd=0.08),
        World(name="early", run_sd=0.03, step_variation=0.4, early=True, known=True),
        World(name="device 1.5 %", device_sd=0.015, **FED),  # type: ignore[arg-type]
        World(name="device 3 %", device_sd=0.03, **FED),  # type: ignore[arg-type]
        World(name="contention", run_sd=0.03, device_sd=0.01, slowed=0.08, **FED),  # type: ignore[arg-type]
    ],
    ids=lambda world: world.name,
)
def test_stated_intervals_cover_the_truth(world: World) -> None:
    draw = random.Random(1)
    stated = [one for _ in range(60) for one in sweep(world, draw)]
    looks = [one for one in stated if one.stage == "look"]
    in_blocks = [one for one in stated if one.stage != "look"]

    def coverage(of: list[Stated]) -> float:
        return fmean(one.covered for one in of)

    assert len(looks) >= 200
    assert coverage(looks) >= 0.92
    assert len(in_blocks) >= 200
    assert coverage(in_blocks) >= 0.92
    if world.name == "quiet":
        assert fmean(one.half for one in in_blocks) <= 0.10
