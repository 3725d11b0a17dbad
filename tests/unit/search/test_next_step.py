from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune import search
from pipetune.candidates.space import Space
from pipetune.records.sweep import Candidate, Goal, Outcome
from pipetune.search.next_step import cannot_win, next_step
from pipetune.search.probes import Seen
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


def test_the_default_and_one_probe_per_backend_come_first_in_an_order_that_the_seed_decides() -> None:
    orders = {tuple(o.candidate.key for o in run(seed=seed)[:4]) for seed in range(20)}
    assert all(
        set(order) == {"pillow-w0-p0-b64", "pillow-w1-p2-b64", "opencv-w1-p2-b64", "dali-w1-p2-b64"} for order in orders
    )
    assert len({order.index("pillow-w0-p0-b64") for order in orders}) > 1


def test_the_cheapest_sufficient_configuration_is_found_in_a_part_of_the_grid() -> None:
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


def test_when_nothing_suffices_the_nearest_is_recommended_and_more_workers_were_tried() -> None:
    goal = Goal(target=0.9, metric="goodput")
    space = Space(backends=("pillow",), workers=(0, 1, 2), prefetch=(2,), batch_size=64, pin_memory=False)
    outcomes = run(space, goal)
    best = recommend(outcomes, goal, space)
    assert best is not None
    assert best.candidate.num_workers == 2
    assert {o.candidate.num_workers for o in outcomes} == {0, 1, 2}


def test_past_the_knee_only_what_was_passed_over_is_tried_and_only_with_the_fastest_backend() -> None:
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


def test_one_worker_that_is_slower_than_none_does_not_end_the_climb() -> None:
    space = Space(backends=("pillow",), workers=(0, 1, 2), prefetch=(2,), batch_size=64, pin_memory=False)
    known = [
        outcome("pillow", 0, rate=560, ceiling=CEILING, role="baseline"),
        outcome("pillow", 1, rate=420, ceiling=CEILING),
    ]
    following = next_candidate(space, known, GOAL, 0)
    assert following is not None
    assert following.num_workers == 2


@pytest.mark.parametrize(("one", "tried"), [(1600, True), (1100, False)])
def test_where_one_worker_nearly_suffices_none_may(one: float, tried: bool) -> None:
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
        assert "opencv: one worker falls short by more than none can make up for" in reasons


def test_what_a_loader_without_workers_reaches_is_no_limit_for_workers() -> None:
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


def test_interrupted_anywhere_the_search_goes_on_as_if_it_had_not_been() -> None:
    whole = run()
    for cut in range(len(whole)):
        assert next_candidate(SPACE, whole[:cut], GOAL, 0) == whole[cut].candidate


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


def test_steps_are_told_in_words() -> None:
    one = [
        outcome("pillow", 0, rate=200, ceiling=CEILING, role="baseline", cpu_s_per_1000_samples=5.0),
        outcome("pillow", 1, rate=190, ceiling=CEILING, cpu_s_per_1000_samples=4.0),
        outcome("opencv", 1, rate=700, ceiling=CEILING, cpu_s_per_1000_samples=1.4),
        outcome("dali", 1, rate=150, ceiling=CEILING, cpu_s_per_1000_samples=6.0),
    ]
    step = next_step(Seen(SPACE, GOAL, search.known(one, GOAL)), 0)
    assert step == (SPACE.candidate("opencv", 4, 2), "num_workers=1 does not suffice")


def test_how_many_there_are_at_most() -> None:
    assert search.most_candidates(SPACE, grid=True) == len(SPACE.grid())
    assert len(run()) <= search.most_candidates(SPACE, grid=False) == len(SPACE.grid())
    assert len(run_knobbed()) <= search.most_candidates(KNOBBED, grid=False) == 1 + 6 + 6 + 14 + 2 + 11 + 3
    assert search.most_candidates(KNOBBED, grid=True) == len(KNOBBED.grid()) > 100


def test_what_decodes_on_the_accelerator_does_not_keep_the_others_from_being_tried() -> None:
    on_gpu = replace(SPACE, accelerator_decodes=("dali",))
    outcomes = [
        outcome("pillow", 0, rate=200, ceiling=CEILING, role="baseline", cpu_s_per_1000_samples=5.0),
        outcome("pillow", 1, rate=250, ceiling=CEILING, cpu_s_per_1000_samples=4.0),
        outcome("opencv", 1, rate=700, ceiling=CEILING, cpu_s_per_1000_samples=1.4),
        outcome("dali", 1, rate=2000, ceiling=CEILING, cpu_s_per_1000_samples=0.2, cores_used=0.4),
    ]
    following = next_candidate(on_gpu, outcomes, GOAL, 0)
    assert following is not None
    assert (following.backend, following.num_workers) == ("opencv", 4)
    # Elsewhere, or where only cores count, it is the cheapest there is.
    for space, goal in ((SPACE, GOAL), (on_gpu, replace(GOAL, cheapest=("cores",)))):
        following = next_candidate(space, outcomes, goal, 0)
        assert following is None or following.backend == "dali"


def test_where_pixels_come_first_less_cpu_time_does_not_put_a_truer_decoder_out() -> None:
    true = replace(GOAL, cheapest=("pixels", "cores"))
    outcomes = [
        outcome("pillow", 0, rate=900, ceiling=CEILING, role="baseline", cpu_s_per_1000_samples=1.1),
        outcome("pillow", 1, rate=900, ceiling=CEILING, cpu_s_per_1000_samples=1.1),
        outcome("opencv", 1, rate=1900, ceiling=CEILING, cpu_s_per_1000_samples=0.5),
        outcome("dali", 1, rate=800, ceiling=CEILING, cpu_s_per_1000_samples=1.2),
    ]
    backends = set()
    while (following := next_candidate(SPACE, outcomes, true, 0)) is not None:
        backends.add(following.backend)
        outcomes.append(outcome(following.backend, following.num_workers, following.prefetch_depth, rate=1900,
                                ceiling=CEILING, cpu_s_per_1000_samples=1.0))  # fmt: skip
    assert "pillow" in backends


def test_where_shared_memory_is_short_threads_and_bytes_are_tried_instead() -> None:
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


def test_where_nothing_suffices_and_cores_are_idle_what_needs_more_of_them_gets_its_turn() -> None:
    # DALI takes more CPU time per image than OpenCV, and has threads of its own, which hand over by themselves.
    idle, busy = ([o.candidate.key for o in stuck(used)[1]] for used in (3.0, 7.5))
    assert "dali-w4-p2-b64" in idle
    assert "pillow-w4-p2-b64" not in idle
    assert "dali-w4-p2-b64" not in busy


def test_what_idle_cores_brought_back_has_its_workers_settled_before_its_prefetch() -> None:
    keys = [o.candidate.key for o in stuck(3.0, prefetch=(1, 2))[1]]
    assert keys.index("dali-w4-p2-b64") < keys.index("dali-w2-p2-b64") < keys.index("dali-w4-p1-b64")


def test_what_was_not_measured_keeps_no_backend_out() -> None:
    """Of one probe NVML's utilisation could not be read."""
    goal = replace(GOAL, metric="nvml")
    space = Space(backends=("opencv", "jpeg-roi"), workers=(1, 2), prefetch=(2,), batch_size=64, pin_memory=False)
    outcomes = [
        outcome("pillow", 0, rate=250, ceiling=CEILING, role="baseline", cpu_s_per_1000_samples=4.0),
        outcome("opencv", 1, rate=1990, ceiling=CEILING, cpu_s_per_1000_samples=0.5, cores_used=1.0),
        outcome("jpeg-roi", 1, rate=1900, ceiling=CEILING, cpu_s_per_1000_samples=0.5, gpu_util_pct=None),
    ]
    found = outcomes[2].measurement
    assert found is not None
    assert cannot_win(Seen(space, goal, search.known(outcomes, goal)), "jpeg-roi", {1: found}) is None
