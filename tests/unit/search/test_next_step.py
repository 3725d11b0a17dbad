from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune import search
from pipetune.candidates.space import Space
from pipetune.records.sweep import Candidate, Goal, Outcome
from pipetune.search.next_step import next_step
from pipetune.search.state import State
from tests.fakes import outcome
from tests.unit.search.chosen import recommend
from tests.unit.search.surface import (
    CEILING,
    GOAL,
    KNOBBED,
    SPACE,
    knobbed,
    measured,
    next_candidate,
    run,
    run_knobbed,
    stuck,
)


def next_of_grid(space: Space, outcomes: list[Outcome], seed: int) -> Candidate | None:
    proposal = search.propose(space, outcomes, GOAL, seed, grid=True)
    return None if proposal is None or proposal.block else proposal.candidate


def test_the_grid_has_each_sensible_combination_once() -> None:
    grid = SPACE.grid()
    assert len(grid) == len(set(grid)) == 9 + 9 + 8  # prefetch has no meaning without workers; dali has no 0
    assert all(c.prefetch_depth == 0 for c in grid if c.num_workers == 0)
    assert not any(c.num_workers == 0 for c in grid if c.backend == "dali")


def test_the_first_probes_in_an_order_that_the_seed_decides() -> None:
    orders = {tuple(o.candidate.key for o in run(seed=seed)[:4]) for seed in range(20)}
    assert all(
        set(order) == {"pillow-w0-p0-b64", "pillow-w1-p2-b64", "opencv-w1-p2-b64", "dali-w1-p2-b64"} for order in orders
    )
    assert len({order.index("pillow-w0-p0-b64") for order in orders}) > 1


def test_the_cheapest_sufficient_candidate_is_found_early() -> None:
    outcomes = run()
    best = recommend(outcomes, GOAL, SPACE)
    assert best is not None
    # 1,800/s: opencv, the cheapest decoder per sample, needs 2.6 workers' worth; 4 is the next choice up.
    assert best.candidate.key == "opencv-w4-p2-b64"
    assert len(outcomes) <= len(SPACE.grid()) / 2
    # It is fed for sure: a deeper prefetch would cost memory for nothing.
    assert not any(o.candidate.prefetch_depth == 4 for o in outcomes)


def test_a_slow_accelerator_needs_no_workers_at_all() -> None:
    slow = [
        outcome("pillow", 0, rate=200, ceiling=200, role="baseline", cores_used=0.8),
        outcome("pillow", 1, rate=200, ceiling=200, cores_used=0.85),
        outcome("opencv", 1, rate=200, ceiling=200, cores_used=0.3),
        outcome("dali", 1, rate=200, ceiling=200, cores_used=0.4),
    ]
    following = next_candidate(SPACE, slow, GOAL, 0)
    assert following is not None
    assert (following.backend, following.num_workers) == ("opencv", 0)


def test_where_none_is_sufficient_the_closest_is_recommended() -> None:
    goal = Goal(target=0.9, metric="goodput")
    space = Space(backends=("pillow",), workers=(0, 1, 2), prefetch=(2,), batch_size=64, pin_memory=False)
    outcomes = run(space, goal)
    best = recommend(outcomes, goal, space)
    assert best is not None
    assert best.candidate.num_workers == 2
    assert {o.candidate.num_workers for o in outcomes} == {0, 1, 2}


def test_a_backend_that_fails_is_left_alone() -> None:
    outcomes = run(fails=("dali",))
    assert sum(o.candidate.backend == "dali" for o in outcomes) == 1
    best = recommend(outcomes, GOAL, SPACE)
    assert best is not None
    assert best.candidate.backend == "opencv"


def test_all_failing_ends_with_no_recommendation() -> None:
    outcomes = run(fails=("pillow", "opencv", "dali"))
    assert recommend(outcomes, GOAL, SPACE) is None


@pytest.mark.parametrize("seed", range(5))
def test_the_grid_is_measured_whole_with_the_default_among_it(seed: int) -> None:
    outcomes: list[Outcome] = []
    while (candidate := next_of_grid(SPACE, outcomes, seed)) is not None:
        outcomes.append(measured(candidate))
    assert {o.candidate for o in outcomes} == {*SPACE.grid(), search.baseline(SPACE)}


def test_resumed_anywhere_it_proposes_the_same() -> None:
    whole = run()
    for cut in range(len(whole)):
        assert next_candidate(SPACE, whole[:cut], GOAL, 0) == whole[cut].candidate


def test_steps_have_a_reason() -> None:
    one = [
        outcome("pillow", 0, rate=200, ceiling=CEILING, role="baseline", cpu_s_per_1000_samples=5.0),
        outcome("pillow", 1, rate=190, ceiling=CEILING, cpu_s_per_1000_samples=4.0),
        outcome("opencv", 1, rate=700, ceiling=CEILING, cpu_s_per_1000_samples=1.4),
        outcome("dali", 1, rate=150, ceiling=CEILING, cpu_s_per_1000_samples=6.0),
    ]
    step = next_step(State.after(SPACE, GOAL, one), 0)
    assert step == (SPACE.candidate("opencv", 4, 2), "num_workers=1 is not sufficient")


def test_max_candidates() -> None:
    assert search.max_candidates(SPACE, grid=True) == len(SPACE.grid())
    assert len(run()) <= search.max_candidates(SPACE, grid=False) == len(SPACE.grid())
    assert len(run_knobbed()) <= search.max_candidates(KNOBBED, grid=False) == 1 + 6 + 6 + 14 + 2 + 11 + 3
    assert search.max_candidates(KNOBBED, grid=True) == len(KNOBBED.grid()) > 100


def test_threads_and_bytes_where_shared_memory_is_short() -> None:
    space = replace(KNOBBED, workers=(1, 2, 4))
    # A default container: no process has room for its float32 batches.
    lacking = frozenset(
        c for c in space.grid()
        if c.loader == "torch" and c.transfer == "float32" and c.backend != "dali" and c.num_workers
    )  # fmt: skip
    space = replace(space, excluded=lacking)
    assert space.workers_of("opencv") == (1, 2, 4)
    outcomes: list[Outcome] = []
    while (candidate := next_candidate(space, outcomes, GOAL, 0)) is not None:
        assert candidate not in lacking
        outcomes.append(knobbed(candidate))
    best = recommend(outcomes, GOAL, space)
    assert best is not None
    assert best.candidate.key == "opencv-w2-p2-b64-thread-u8"
    assert search.left_out(space, outcomes, GOAL, ended=True)


def test_idle_cores_bring_native_workers_back() -> None:
    # DALI takes more CPU time per image than OpenCV, and has threads of its own, which hand over by themselves.
    idle, busy = ([o.candidate.key for o in stuck(used)[1]] for used in (3.0, 7.5))
    assert "dali-w4-p2-b64" in idle
    assert "pillow-w4-p2-b64" not in idle
    assert "dali-w4-p2-b64" not in busy


def test_a_backend_brought_back_has_its_workers_before_its_prefetch() -> None:
    keys = [o.candidate.key for o in stuck(3.0, prefetch=(1, 2))[1]]
    assert keys.index("dali-w4-p2-b64") < keys.index("dali-w2-p2-b64") < keys.index("dali-w4-p1-b64")


@pytest.mark.parametrize(
    ("rate", "first"),
    [
        pytest.param(555, "jpeg-roi", id="chance may have put opencv in front"),
        pytest.param(900, "opencv", id="opencv is faster beyond chance"),
    ],
)
def test_of_probes_that_differ_by_chance_the_decoder_that_is_usually_cheaper_comes_first(
    rate: float, first: str
) -> None:
    """Else a search that ends with the first sufficient candidate would recommend what one noisy probe favours."""
    space = Space(backends=("pillow", "opencv", "jpeg-roi"), workers=(0, 1, 2), prefetch=(2,), batch_size=64,
                  pin_memory=False, usable_cores=2.0)  # fmt: skip
    seen = [
        outcome("pillow", 0, rate=434, ceiling=1100, role="baseline", cores_used=1.14),
        outcome("jpeg-roi", 1, rate=493, ceiling=1100, cores_used=1.09),
        outcome("opencv", 1, rate=rate, ceiling=1100, cores_used=1.09),
    ]
    following = next_candidate(space, seen, Goal(target=0.9, metric="goodput", effort="normal"), 0)
    assert following is not None
    assert (following.backend, following.num_workers) == (first, 2)


@pytest.mark.parametrize(("effort", "fewer"), [("normal", False), ("thorough", True)])
def test_fewer_workers_are_no_remedy_for_a_script_that_leaves_cores_idle(effort: str, fewer: bool) -> None:
    """Nothing suffices: each further candidate takes seconds of the script."""
    rates = {(1, 2): 400.0, (2, 2): 500.0, (4, 2): 480.0, (1, 4): 410.0, (2, 4): 560.0, (4, 4): 550.0}
    own = SPACE.candidate("opencv", 1, 2)
    space = replace(SPACE, backends=("opencv",), default_backend="opencv", workers=(1, 2, 4), untuned=own,
                    confirm_alone=True, usable_cores=8.0)  # fmt: skip
    goal, outcomes = replace(GOAL, effort=effort), list[Outcome]()
    while (candidate := next_candidate(space, outcomes, goal, 0)) is not None:
        rate = rates[candidate.num_workers, candidate.prefetch_depth]
        outcomes.append(
            outcome("opencv", candidate.num_workers, prefetch=candidate.prefetch_depth, rate=rate, ceiling=1000.0,
                    role="baseline" if candidate == own else "candidate", cores_used=1.5)
        )  # fmt: skip
    tried = {(o.candidate.num_workers, o.candidate.prefetch_depth) for o in outcomes}
    assert {(2, 4), (4, 4)} <= tried
    assert ((1, 4) in tried) == fewer
