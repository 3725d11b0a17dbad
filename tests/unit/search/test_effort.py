from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune import search
from pipetune.candidates.space import Space
from pipetune.records.sweep import THOROUGH, Candidate, Failure, Goal, Outcome
from pipetune.registry import BACKENDS, find_backend
from pipetune.search.effort import EFFORTS, may_matter
from pipetune.search.state import State
from pipetune.search.tuning import by_usual_cost
from tests.fakes import outcome

#: CPU time per image, in ms. Threads take half of it.
COSTS = {"pillow": 4.0, "opencv": 3.0, "jpeg-roi": 2.0, "jpeg-roi-fast": 1.9, "torchvision": 3.8, "dali": 3.2}
CORES = 16.0
SPACE = Space(
    backends=tuple(COSTS), workers=(0, 1, 2, 4, 8, 16), prefetch=(2, 4), batch_size=64, pin_memory=False,
    settings=(("loader", ("torch", "threads")),), usable_cores=CORES,
)  # fmt: skip
NORMAL = Goal(target=0.9, metric="goodput", effort="normal")
QUICK, THOROUGHLY = replace(NORMAL, effort="quick"), replace(NORMAL, effort=THOROUGH)
FAILED = Failure(kind="crashed", phase="open", message="x")


def measured(candidate: Candidate, ceiling: float, *, most: float = CORES, fails: tuple[str, ...] = ()) -> Outcome:
    """On a machine on which every worker is as fast as the first one, until ``most`` cores are in use."""
    role = "baseline" if candidate == search.baseline(SPACE) else "candidate"
    if candidate.backend in fails:
        return replace(outcome(failure=FAILED, role=role), candidate=candidate)
    cost = COSTS[candidate.backend] * (0.5 if candidate.loader == "threads" else 1.0)
    rate = min(ceiling, 1000 / cost * min(max(1, candidate.num_workers), most))
    cores = rate * cost / 1000
    return replace(
        outcome(rate=rate, ceiling=ceiling, cores_used=cores, cpu_s_per_1000_samples=cost, role=role),
        candidate=candidate,
    )


def run(ceiling: float, goal: Goal = NORMAL, space: Space = SPACE, **machine: object) -> list[Outcome]:
    """The whole search, blocks included."""
    outcomes: list[Outcome] = []
    while (proposal := search.propose(space, outcomes, goal, 0)) is not None:
        outcomes.append(replace(measured(proposal.candidate, ceiling, **machine), block=proposal.block))  # type: ignore[arg-type]
        assert len(outcomes) < 60
    return outcomes


def keys(outcomes: list[Outcome]) -> list[str]:
    return [outcome.candidate.key for outcome in outcomes if not outcome.block]


def recommended(outcomes: list[Outcome], goal: Goal = NORMAL, space: Space = SPACE) -> Outcome:
    choice = search.choose(outcomes, goal, space)
    assert choice is not None
    return choice.outcome


def reasons(outcomes: list[Outcome], goal: Goal = NORMAL) -> dict[str, str]:
    ended = search.is_exhausted(SPACE, outcomes, goal)
    assert ended
    return {key: group.reason for group in search.left_out(SPACE, outcomes, goal, ended=ended) for key in group.keys}


def test_a_default_that_suffices_is_all_that_is_measured() -> None:
    outcomes = run(ceiling=200.0)
    assert keys(outcomes) == ["pillow-w0-p0-b64"] == [o.candidate.key for o in outcomes]
    assert set(reasons(outcomes).values()) == {"no other configuration is expected to save more than 0.7 cores"}
    assert search.is_confirmed(SPACE, outcomes, NORMAL)
    assert len(run(ceiling=200.0, goal=THOROUGHLY)) > 8


def test_the_likeliest_decoder_comes_first_and_unlikely_ones_not_at_all() -> None:
    outcomes = run(ceiling=20_000.0)
    assert keys(outcomes)[:3] == ["pillow-w0-p0-b64", "jpeg-roi-w1-p2-b64", "jpeg-roi-w1-p2-b64-thread"]
    assert {o.candidate.backend for o in outcomes} == {"pillow", "jpeg-roi", "jpeg-roi-fast"}
    assert reasons(outcomes)["torchvision-w1-p2-b64"] == (
        "torchvision: it usually takes 1.7 times the CPU time of jpeg-roi per image"
    )
    assert recommended(outcomes).candidate.num_workers == 16


def test_a_saving_of_several_cores_is_looked_for() -> None:
    # 6,000 samples/s: 12 cores with processes, 6 with threads.
    outcomes = run(ceiling=6000.0)
    best = recommended(outcomes)
    assert best.candidate.loader == "threads"
    assert best.measurement is not None
    assert best.measurement.cores_used == pytest.approx(6.0, rel=0.1)


def test_a_saving_of_less_than_a_core_is_not() -> None:
    # 1,200 samples/s: 2.4 cores with processes, 1.2 with threads, and 1.1 with jpeg-roi-fast.
    outcomes = run(ceiling=1200.0)
    assert recommended(outcomes).candidate.backend == "jpeg-roi"
    assert "jpeg-roi-fast" not in {o.candidate.backend for o in outcomes}
    assert {reason.rsplit(" ", 2)[0] for reason in reasons(outcomes).values()} == {
        "no other configuration is expected to save more than"
    }


def test_a_saving_that_would_be_written_as_nothing_is_not_a_number() -> None:
    outcomes = run(ceiling=1.0)
    assert set(reasons(outcomes).values()) == {"no other configuration is expected to need fewer cores"}


def test_quick_ends_with_the_first_sufficient_candidate() -> None:
    few, more = run(ceiling=6000.0, goal=QUICK), run(ceiling=6000.0)
    assert len(few) < len(more)
    first = next(place for place, o in enumerate(few) if search.meets(o.measurement, QUICK))  # type: ignore[arg-type]
    assert all(o.block for o in few[first + 1 :])


def test_where_something_else_is_the_first_cost_cores_end_nothing() -> None:
    memory = replace(NORMAL, cheapest=("memory", "cores"))
    assert len(run(ceiling=200.0, goal=memory)) > 1


def test_quick_says_that_it_ends_with_the_first_sufficient_candidate() -> None:
    outcomes = run(ceiling=200.0, goal=QUICK)
    assert search.ended_because(SPACE, outcomes, QUICK) == "--effort quick takes the first candidate that suffices"


def test_quick_ends_all_the_same() -> None:
    quick = replace(QUICK, cheapest=("memory", "cores"))
    assert [outcome.block for outcome in run(ceiling=200.0, goal=quick) if not outcome.block] == [0]


def test_a_decoder_that_a_lowered_limit_leaves_without_workers_is_no_fault() -> None:
    space = replace(SPACE, backends=("pillow", "dali"), settings=())
    known = [measured(space.candidate("dali", 2, 2), 200.0), measured(search.baseline(space), 200.0)]
    none = replace(space, workers=(0,))
    assert none.workers_of("dali") == ()
    assert search.propose(none, known, NORMAL, 0) is not None or search.is_exhausted(none, known, NORMAL)


def test_the_next_decoder_takes_the_place_of_one_that_fails() -> None:
    outcomes = run(ceiling=20_000.0, fails=("jpeg-roi",))
    assert keys(outcomes)[1:3] == ["jpeg-roi-w1-p2-b64", "pillow-w1-p2-b64"]
    assert recommended(outcomes).candidate.backend == "jpeg-roi-fast"
    assert reasons(outcomes)["jpeg-roi-w2-p2-b64"] == "jpeg-roi: its probe failed (crashed)"


def test_nothing_that_works_ends_the_search() -> None:
    outcomes = run(ceiling=2000.0, fails=tuple(COSTS))
    assert {o.candidate.backend for o in outcomes} == set(COSTS)
    assert search.choose(outcomes, NORMAL, SPACE) is None


def test_threads_inside_a_library_are_tried_where_cores_stay_idle() -> None:
    # Whatever else hands batches over stops gaining at four cores.
    def dali_is_free(candidate: Candidate) -> Outcome:
        return measured(candidate, 20_000.0, most=CORES if candidate.backend == "dali" else 4.0)

    outcomes: list[Outcome] = []
    while (proposal := search.propose(SPACE, outcomes, NORMAL, 0)) is not None:
        outcomes.append(replace(dali_is_free(proposal.candidate), block=proposal.block))
    assert recommended(outcomes).candidate.backend == "dali"
    assert "dali" not in {o.candidate.backend for o in run(ceiling=20_000.0)}


def test_the_order_of_decoders() -> None:
    order = by_usual_cost(replace(SPACE, backends=("pillow", "dali", "simplejpeg", "torchvision", "jpeg-roi")))
    assert order == ["jpeg-roi", "pillow", "torchvision", "simplejpeg", "dali"]


def test_one_block_where_nothing_is_undecided() -> None:
    assert {o.block for o in run(ceiling=20_000.0)} == {0, 1}


def test_most_blocks() -> None:
    assert max(effort.blocks for effort in EFFORTS.values()) == EFFORTS[THOROUGH].blocks == 3


def test_usual_costs_are_beside_pillows() -> None:
    assert find_backend("pillow").usual_cost == 1.0
    assert all(0.2 < backend.usual_cost < 2.0 for backend in BACKENDS.values())


def test_a_default_that_the_options_leave_out_ends_nothing() -> None:
    space = replace(SPACE, workers=(1, 2))
    outcomes = run(ceiling=200.0, space=space)
    assert recommended(outcomes, space=space).candidate.num_workers == 1


def test_a_search_that_decides_nothing_comes_to_its_end() -> None:
    """As on a disturbed machine: whatever is measured next is the fastest so far."""
    outcomes: list[Outcome] = []
    space = replace(SPACE, workers=tuple(range(40)))
    while (proposal := search.propose(space, outcomes, NORMAL, 0)) is not None:
        faster = outcome(rate=100.0 + len(outcomes), ceiling=20_000.0, ci95=(1.0, 900.0), cores_used=1.0)
        role = "baseline" if proposal.candidate == search.baseline(space) else "candidate"
        outcomes.append(replace(faster, candidate=proposal.candidate, block=proposal.block, role=role))
    assert len([o for o in outcomes if not o.block]) <= EFFORTS["normal"].most
    assert search.is_exhausted(space, outcomes, NORMAL)
    assert "--effort normal" in (search.ended_because(space, outcomes, NORMAL) or "")


def test_after_the_best_were_compared_nothing_new_is_measured_though_nothing_suffices() -> None:
    outcomes: list[Outcome] = []
    while (proposal := search.propose(SPACE, outcomes, NORMAL, 0)) is not None:
        found = measured(proposal.candidate, 20_000.0)
        if proposal.block == 1 and found.measurement is not None:  # what looked fast was luck
            slow = replace(found.measurement, samples_per_s=found.measurement.samples_per_s / 2)
            found = replace(found, measurement=slow)
        outcomes.append(replace(found, block=proposal.block))
        assert len(outcomes) < 60
    first = next(number for number, outcome in enumerate(outcomes) if outcome.block)
    known = {outcome.candidate for outcome in outcomes[:first]}
    assert {outcome.candidate for outcome in outcomes[first:]} <= known
    assert "side by side" in (search.ended_because(SPACE, outcomes, NORMAL) or "")


def test_what_the_search_ended_with_is_said_though_the_comparison_leaves_it_undecided() -> None:
    outcomes = run(ceiling=1_200.0)
    first = next(number for number, outcome in enumerate(outcomes) if outcome.block)
    why = search.ended_because(SPACE, outcomes[:first], NORMAL)
    assert why is not None
    assert "side by side" not in why
    chosen = recommended(outcomes)
    assert chosen.measurement is not None
    undecided = replace(chosen.measurement, goodput_ci95=(0.1, 1.9), ci95=(1.0, 9_000.0))
    blocks = [replace(o, measurement=undecided if o.candidate == chosen.candidate else o.measurement)
              for o in outcomes[first:]]  # fmt: skip
    assert search.ended_because(SPACE, [*outcomes[:first], *blocks], NORMAL) == why


def test_what_was_to_be_saved_is_not_said_where_the_target_is_missed_in_the_end() -> None:
    outcomes = run(ceiling=1_200.0)
    why = search.ended_because(SPACE, outcomes, NORMAL)
    assert why is not None
    assert "to save" in why
    assert search.ended_because(SPACE, outcomes, NORMAL, met=False) == "a candidate seemed to suffice"


def test_a_decoder_on_the_accelerator_keeps_no_search_going_that_has_found_one_on_the_cpu() -> None:
    """It needs almost no cores, and takes time from the model instead, which counts first."""
    on_cpu = replace(SPACE, backends=("pillow", "dali"))
    on_gpu = replace(on_cpu, accelerator_decodes=("dali",))
    assert "dali" in {outcome.candidate.backend for outcome in run(ceiling=6_000.0, space=on_cpu)}
    assert "dali" not in {outcome.candidate.backend for outcome in run(ceiling=6_000.0, space=on_gpu)}
    pillow = Candidate(backend="pillow", num_workers=4, prefetch_depth=2, batch_size=64)
    assert may_matter(State.after(on_cpu, NORMAL, [measured(pillow, 800.0)]), "dali", "pillow")
    assert not may_matter(State.after(on_gpu, NORMAL, [measured(pillow, 800.0)]), "dali", "pillow")
