from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune import search
from pipetune.candidates.space import Space
from tests.fakes import outcome
from tests.unit.search.chosen import recommend
from tests.unit.search.surface import CEILING, GOAL, SPACE, next_candidate


def test_past_the_knee_only_skipped_counts_of_the_fastest_backend_are_tried() -> None:
    flat = [
        outcome("pillow", 0, rate=200, ceiling=CEILING, role="baseline"),
        *(
            outcome(name, 1, rate=rate, ceiling=CEILING)
            for name, rate in (("pillow", 250), ("opencv", 700), ("dali", 240))
        ),
        outcome("opencv", 4, rate=710, ceiling=CEILING),
    ]
    following = next_candidate(SPACE, flat, GOAL, 0)
    assert following is not None
    assert (following.backend, following.num_workers) == ("opencv", 2)
    flat.append(outcome("opencv", 2, rate=760, ceiling=CEILING))
    counts = {"opencv": [], "pillow": [], "dali": []}
    while (following := next_candidate(SPACE, flat, GOAL, 0)) is not None:
        counts[following.backend].append(following.num_workers)
        flat.append(
            outcome(following.backend, following.num_workers, following.prefetch_depth, rate=255, ceiling=CEILING)
        )
    assert counts == {"opencv": [2], "pillow": [8], "dali": [8]}  # opencv again for its other prefetch depth


def test_a_peak_between_two_tried_counts_is_found() -> None:
    space = Space(backends=("opencv",), workers=(1, 2, 4, 8, 16), prefetch=(2,), batch_size=64, pin_memory=False)
    rates = {1: 160.0, 2: 300.0, 4: 500.0, 8: 700.0, 16: 600.0}
    outcomes = [outcome("pillow", 0, rate=90, ceiling=CEILING, role="baseline")]
    while (candidate := next_candidate(space, outcomes, GOAL, 0)) is not None:
        outcomes.append(outcome("opencv", candidate.num_workers, rate=rates[candidate.num_workers], ceiling=CEILING))
    best = recommend(outcomes, GOAL, space)
    assert best is not None
    assert best.candidate.num_workers == 8


def test_one_worker_slower_than_none_is_no_knee() -> None:
    space = Space(backends=("pillow",), workers=(0, 1, 2), prefetch=(2,), batch_size=64, pin_memory=False)
    known = [
        outcome("pillow", 0, rate=560, ceiling=CEILING, role="baseline"),
        outcome("pillow", 1, rate=420, ceiling=CEILING),
    ]
    following = next_candidate(space, known, GOAL, 0)
    assert following is not None
    assert following.num_workers == 2


@pytest.mark.parametrize(("one", "tried"), [(1600, True), (1100, False)])
def test_no_workers_are_tried_where_one_is_nearly_sufficient(one: float, tried: bool) -> None:
    space = Space(backends=("pillow", "opencv"), workers=(0, 1, 2), prefetch=(2,), batch_size=64, pin_memory=False)
    seen = [
        outcome("pillow", 0, rate=450, ceiling=CEILING, role="baseline", cpu_s_per_1000_samples=4.0),
        outcome("pillow", 1, rate=300, ceiling=CEILING, cpu_s_per_1000_samples=4.0),
        outcome("opencv", 1, rate=one, ceiling=CEILING, cpu_s_per_1000_samples=0.6, cores_used=1.0),
        outcome("opencv", 2, rate=1900, ceiling=CEILING, cpu_s_per_1000_samples=0.6, cores_used=1.2),
    ]
    following = next_candidate(space, seen, GOAL, 0)
    assert (following == space.candidate("opencv", 0, 2)) == tried
    if not tried:
        reasons = [group.reason for group in search.left_out(space, seen, GOAL, ended=True)]
        assert "opencv: one worker misses the target by more than loading without workers gains" in reasons


def test_no_workers_are_no_limit_for_workers() -> None:
    space = Space(backends=("pillow", "dali"), workers=(0, 1, 2), prefetch=(2,), batch_size=64, pin_memory=False)
    seen = [
        outcome("pillow", 0, rate=800, ceiling=CEILING, role="baseline", cpu_s_per_1000_samples=0.8),
        outcome("pillow", 1, rate=1280, ceiling=CEILING, cpu_s_per_1000_samples=0.8),
        outcome("dali", 1, rate=1000, ceiling=CEILING, cpu_s_per_1000_samples=0.85, cores_used=1.0),
        outcome("dali", 2, rate=1850, ceiling=CEILING, cpu_s_per_1000_samples=0.85, cores_used=1.7),
    ]
    following = next_candidate(space, seen, GOAL, 0)
    assert following is not None
    assert following.key == "pillow-w2-p2-b64"


def test_a_worker_count_is_tried_at_the_depth_that_fits() -> None:
    space = Space(backends=("opencv",), workers=(1, 2), prefetch=(1, 2), batch_size=64, pin_memory=False)
    small = replace(space, excluded=frozenset({space.candidate("opencv", 2, 2)}))
    assert small.workers_of("opencv") == (1, 2)
    assert (small.depth_of("opencv", 1), small.depth_of("opencv", 2)) == (2, 1)
    known = [
        outcome("pillow", 0, rate=200, ceiling=CEILING, role="baseline"),
        outcome("opencv", 1, rate=700, ceiling=CEILING),
    ]
    following = next_candidate(small, known, GOAL, 0)
    assert following == space.candidate("opencv", 2, 1)


@pytest.mark.parametrize("effort", ["normal", "thorough"])
def test_no_more_workers_than_take_all_cores(effort: str) -> None:
    space = Space(
        backends=("opencv",), workers=(0, 1, 2, 4, 8), prefetch=(2,), batch_size=64, pin_memory=False, usable_cores=4.0
    )
    goal = replace(GOAL, effort=effort)
    rates = {0: 100.0, 1: 100.0, 2: 200.0, 4: 400.0, 8: 400.0}
    outcomes = [outcome("pillow", 0, rate=60, ceiling=CEILING, cores_used=1.0, role="baseline")]
    tried = []
    while (candidate := next_candidate(space, outcomes, goal, 0)) is not None:
        count = candidate.num_workers
        tried.append(count)
        outcomes.append(outcome("opencv", count, rate=rates[count], ceiling=CEILING, cores_used=min(4.0, count)))
    assert tried[:2] == ([1, 4] if effort == "normal" else [1, 8])
    assert (8 in tried) is (effort == "thorough")
