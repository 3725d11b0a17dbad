from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from pipetune.candidates.space import Space
from pipetune.search.left_out import left_out
from pipetune.search.pruning import cannot_win, dominated
from pipetune.search.state import State
from tests.fakes import outcome
from tests.unit.search import surface
from tests.unit.search.probed import COSTS, GOAL, SPACE, probed


@pytest.mark.parametrize(("scatter", "is_out"), [(0.0, True), (0.03, False)])
def test_the_scatter_of_repetitions_dominates_no_decoder(scatter: float, is_out: bool) -> None:
    outcomes = []
    for number, (backend, count) in enumerate(itertools.product(("opencv", "dali"), (1, 2, 4, 8))):
        speed = 1 + scatter * (-1) ** number
        about = {"cpu_s_per_1000_samples": 1.16 if backend == "dali" else 1.0, "machine_speed_before": speed}
        outcomes.append(outcome(backend, count, rate=400, machine_speed_after=speed, **about))
    seen = State.after(SPACE, GOAL, outcomes)
    settings: dict[str, dict[str, object]] = {"opencv": {}, "dali": {}}
    assert (dominated(seen, "dali", settings) is not None) == is_out
    assert dominated(seen, "opencv", settings) is None


def test_a_dominated_backend_has_its_reason() -> None:
    outcomes = probed(COSTS)
    reasons = {key: group.reason for group in left_out(SPACE, outcomes, GOAL, ended=True) for key in group.keys}
    assert reasons["pillow-w1-p2-b64-thread"] == (
        "pillow: its probe needed 233 % more CPU time per image than opencv's"
    )


def test_what_was_not_measured_prunes_nothing() -> None:
    """Of one probe NVML's utilisation could not be read."""
    goal = replace(surface.GOAL, metric="nvml")
    space = Space(backends=("opencv", "jpeg-roi"), workers=(1, 2), prefetch=(2,), batch_size=64, pin_memory=False)
    outcomes = [
        outcome("pillow", 0, rate=250, ceiling=surface.CEILING, role="baseline", cpu_s_per_1000_samples=4.0),
        outcome("opencv", 1, rate=1990, ceiling=surface.CEILING, cpu_s_per_1000_samples=0.5, cores_used=1.0),
        outcome("jpeg-roi", 1, rate=1900, ceiling=surface.CEILING, cpu_s_per_1000_samples=0.5, gpu_util_pct=None),
    ]
    found = outcomes[2].measurement
    assert found is not None
    assert cannot_win(State.after(space, goal, outcomes), "jpeg-roi", {1: found}) is None


def test_less_cpu_time_dominates_no_decoder_with_better_pixels() -> None:
    true = replace(surface.GOAL, cheapest=("pixels", "cores"))
    outcomes = [
        outcome("pillow", 0, rate=900, ceiling=surface.CEILING, role="baseline", cpu_s_per_1000_samples=1.1),
        outcome("pillow", 1, rate=900, ceiling=surface.CEILING, cpu_s_per_1000_samples=1.1),
        outcome("opencv", 1, rate=1900, ceiling=surface.CEILING, cpu_s_per_1000_samples=0.5),
        outcome("dali", 1, rate=800, ceiling=surface.CEILING, cpu_s_per_1000_samples=1.2),
    ]
    backends = set()
    while (following := surface.next_candidate(surface.SPACE, outcomes, true, 0)) is not None:
        backends.add(following.backend)
        outcomes.append(outcome(following.backend, following.num_workers, following.prefetch_depth, rate=1900,
                                ceiling=surface.CEILING, cpu_s_per_1000_samples=1.0))  # fmt: skip
    assert "pillow" in backends


def test_decoding_on_the_accelerator_prunes_no_other_backend() -> None:
    on_gpu = replace(surface.SPACE, accelerator_decodes=("dali",))
    outcomes = [
        outcome("pillow", 0, rate=200, ceiling=surface.CEILING, role="baseline", cpu_s_per_1000_samples=5.0),
        outcome("pillow", 1, rate=250, ceiling=surface.CEILING, cpu_s_per_1000_samples=4.0),
        outcome("opencv", 1, rate=700, ceiling=surface.CEILING, cpu_s_per_1000_samples=1.4),
        outcome("dali", 1, rate=2000, ceiling=surface.CEILING, cpu_s_per_1000_samples=0.2, cores_used=0.4),
    ]
    following = surface.next_candidate(on_gpu, outcomes, surface.GOAL, 0)
    assert following is not None
    assert (following.backend, following.num_workers) == ("opencv", 4)
    # Elsewhere, or where only cores count, it is the cheapest there is.
    for space, goal in ((surface.SPACE, surface.GOAL), (on_gpu, replace(surface.GOAL, cheapest=("cores",)))):
        following = surface.next_candidate(space, outcomes, goal, 0)
        assert following is None or following.backend == "dali"
