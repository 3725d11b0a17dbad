"""An edit is recommended only where it is proven to be worth it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from pipetune import search
from pipetune.candidates.space import Space
from pipetune.records.edit import FASTER, LEANER, TOO_NOISY, UNPROVEN, Edit
from pipetune.records.sweep import Candidate, Goal, Outcome
from pipetune.registry import SCRIPT, USER
from pipetune.search.proof import find_contender, is_within_reach, judge_edit
from tests.fakes import outcome

GOAL = Goal(target=0.9, metric="goodput", effort="normal")
OWN = Candidate(backend=SCRIPT.name, num_workers=2, prefetch_depth=2, batch_size=16, loader=USER)
OTHER = replace(OWN, num_workers=4)
SPACE = Space(
    backends=(SCRIPT.name,),
    workers=(1, 2, 4),
    prefetch=(2,),
    batch_size=16,
    pin_memory=False,
    untuned=OWN,
    confirm_alone=True,
    alternates=True,
    usable_cores=4.0,
)


def look(candidate: Candidate, rate: float, half: float = 0.05, block: int = 0, **changes: Any) -> Outcome:
    """A measurement with that half-width of its interval, of an accelerator that takes 1,000 samples/s."""
    ci95 = (rate * (1 - half), rate * (1 + half))
    found = outcome(rate=rate, ceiling=1000.0, ci95=ci95, goodput_ci95=(ci95[0] / 1000, ci95[1] / 1000), **changes)
    role = "baseline" if candidate == OWN else "candidate"
    return replace(found, candidate=candidate, block=block, role=role)


def side_by_side(
    rates: tuple[float, float], half: float = 0.05, blocks: int = 1, own: Any = None, other: Any = None
) -> list[Outcome]:
    """The script and the other candidate first, and then in so many blocks."""
    return [
        look(candidate, rate, half, block, **(changes or {}))
        for block in range(blocks + 1)
        for candidate, rate, changes in ((OWN, rates[0], own), (OTHER, rates[1], other))
    ]


def judged(outcomes: list[Outcome]) -> Edit:
    edit = judge_edit(OTHER, outcomes, SPACE)
    assert edit is not None
    return edit


def recommended(outcomes: list[Outcome]) -> Candidate:
    found = search.recommend(outcomes, GOAL, SPACE)
    assert found is not None
    return found.choice.outcome.candidate


def test_a_gain_is_proven_where_its_interval_lies_above_one() -> None:
    clear = side_by_side((400.0, 520.0))
    assert judged(clear).verdict == FASTER
    assert judged(clear).gain == pytest.approx(1.3)
    assert judged(clear).gain_ci95[0] > 1
    assert recommended(clear) == OTHER
    doubtful = side_by_side((400.0, 416.0), half=0.1)
    edit = judged(doubtful)
    assert (edit.verdict, edit.is_proven) == (UNPROVEN, False)
    assert edit.gain_ci95[0] < 1 < edit.gain_ci95[1]
    assert recommended(doubtful) == OWN


def test_a_gain_of_first_looks_needs_more_than_one_that_was_measured_side_by_side() -> None:
    first = judged(side_by_side((400.0, 440.0), blocks=0))
    beside = judged(side_by_side((400.0, 440.0), blocks=1))
    assert (first.verdict, beside.verdict) == (UNPROVEN, FASTER)
    assert (first.blocks, beside.blocks) == (0, 1)
    assert judged(side_by_side((400.0, 800.0), blocks=0)).verdict == FASTER


def test_the_speed_of_the_machine_between_blocks_does_not_count() -> None:
    """It was slow while the script was measured first, and twice as fast later."""
    outcomes = [look(OWN, 200.0), look(OTHER, 380.0), look(OWN, 400.0, block=1), look(OTHER, 400.0, block=1)]
    assert judged(outcomes).gain == pytest.approx(1.0)
    assert recommended(outcomes) == OWN


def test_blocks_that_contradict_each_other_prove_nothing() -> None:
    outcomes = side_by_side((400.0, 400.0), half=0.01, blocks=0)
    outcomes += [look(OWN, 400.0, 0.01, 1), look(OTHER, 560.0, 0.01, 1), look(OWN, 400.0, 0.01, 2)]
    outcomes += [look(OTHER, 404.0, 0.01, 2)]
    assert not judged(outcomes).is_proven


FEW, MANY = {"cores_used": 1.0, "pss_bytes": 2**29}, {"cores_used": 3.0, "pss_bytes": 2**30}


@pytest.mark.parametrize(
    ("own", "other"),
    [(MANY, FEW), (MANY, {**MANY, "cores_used": 2.0}), (MANY, {**MANY, "pss_bytes": int(0.89 * 2**30)})],
)
def test_a_core_or_a_tenth_of_the_memory_that_costs_nothing_is_worth_an_edit(own: Any, other: Any) -> None:
    fed = side_by_side((990.0, 990.0), half=0.005, own=own, other=other)
    assert judged(fed).verdict == LEANER


@pytest.mark.parametrize(
    ("rate", "half", "other"),
    [
        (960.0, 0.005, FEW),  # loses 3 %
        (990.0, 0.05, FEW),  # may lose more than 2 %
        (990.0, 0.005, {"cores_used": 2.1, "pss_bytes": int(0.95 * 2**30)}),
        (990.0, 0.005, {"cores_used": None, "pss_bytes": None}),
    ],
)
def test_a_saving_that_may_cost_or_is_small_is_not(rate: float, half: float, other: Any) -> None:
    outcomes = side_by_side((990.0, rate), half=half, own=MANY, other=other)
    assert judged(outcomes).verdict == UNPROVEN
    assert recommended(outcomes) == OWN


def test_a_saving_has_to_be_there_each_time() -> None:
    outcomes = side_by_side((990.0, 990.0), half=0.005, blocks=2, own=MANY, other=FEW)
    last = outcomes[-1].measurement
    assert last is not None
    outcomes[-1] = replace(outcomes[-1], measurement=replace(last, cores_used=2.9, pss_bytes=2**30))
    assert judged(outcomes).verdict == UNPROVEN
    assert judged(outcomes).saved_cores == pytest.approx(0.1)


def test_what_uses_fewer_workers_saves_nothing_by_that() -> None:
    """A U-Net's loader: 2 workers -> 1, at 0.1 cores each way."""
    own = {"cores_used": 0.10, "pss_bytes": 2_080_000_000}
    fewer = replace(OWN, num_workers=1)
    outcomes = [
        look(candidate, rate, 0.22, block, **{**own, "pss_bytes": memory})
        for block in (0, 1)
        for candidate, rate, memory in ((OWN, 950.0, 2_080_000_000), (fewer, 940.0, 2_050_000_000))
    ]
    assert recommended(outcomes) == OWN


def test_wide_intervals_are_too_noisy_to_tell() -> None:
    """Two ranks on two cores: 1.04 times (0.43 to 2.49)."""
    noisy = side_by_side((400.0, 416.0), half=0.6)
    edit = judged(noisy)
    assert edit.verdict == TOO_NOISY
    assert recommended(noisy) == OWN
    lucky = judged(side_by_side((400.0, 660.0), half=0.3))
    assert lucky.gain_ci95[0] < 1 or lucky.verdict == TOO_NOISY
    slower = judged(side_by_side((800.0, 200.0), half=0.3))
    assert slower.verdict == UNPROVEN, "that it is slower is clear"


def test_how_long_a_measurement_would_tell_follows_from_the_noise() -> None:
    doubtful = judged(side_by_side((400.0, 420.0), half=0.1))
    assert doubtful.more_blocks is not None
    half = math.log(doubtful.gain_ci95[1] / doubtful.gain)
    enough = half / math.sqrt(1 + doubtful.more_blocks)
    assert enough < math.log(doubtful.gain) <= half / math.sqrt(doubtful.more_blocks)
    assert doubtful.more_s == pytest.approx(20.0 * doubtful.more_blocks), "both take 10 s"
    assert not is_within_reach(doubtful, doubtful.more_blocks - 1)
    assert is_within_reach(doubtful, doubtful.more_blocks)
    nothing = judged(side_by_side((400.0, 402.0), half=0.1))
    assert (nothing.more_blocks, nothing.more_s) == (None, None), "too small to be worth it"
    assert judged(side_by_side((400.0, 800.0))).more_s is None, "it is proven"


def test_the_noise_that_is_known_in_the_end_counts() -> None:
    """Each measurement was stated as if repeats scattered a lot, and then they did not."""
    outcomes = side_by_side((400.0, 440.0), half=0.2, blocks=4)
    stated = judged(outcomes)
    known = [
        replace(one, measurement=replace(one.measurement, within_error_frac=0.005))
        for one in outcomes
        if one.measurement
    ]
    assert judged(known).gain_ci95[0] > stated.gain_ci95[0]
    assert judged(known).verdict == FASTER


def test_the_fastest_of_the_others_is_in_question_where_the_script_does_not_suffice() -> None:
    slower = side_by_side((400.0, 390.0), blocks=0)
    assert find_contender(slower, GOAL, SPACE) == OTHER
    fed = side_by_side((990.0, 985.0), half=0.005, blocks=0)
    assert find_contender(fed, GOAL, SPACE) is None


def test_where_the_options_leave_the_baseline_out_there_is_nothing_to_leave_as_it_is() -> None:
    space = replace(SPACE, workers=(4,))
    doubtful = side_by_side((400.0, 404.0), half=0.1)
    found = search.recommend(doubtful, GOAL, space)
    assert found is not None
    assert found.choice.outcome.candidate == OTHER
    assert found.edit is not None
    assert not found.edit.is_proven


def test_without_the_baseline_nothing_is_said_of_an_edit() -> None:
    found = search.recommend([look(OTHER, 500.0)], GOAL, SPACE)
    assert found is not None
    assert found.edit is None


def blocks_after(outcomes: list[Outcome], like: dict[Candidate, float], half: float) -> list[int]:
    """Numbers of the blocks that follow in a script's sweep, each measurement as before."""
    space = replace(SPACE, workers=(2, 4))
    found: list[int] = []
    while proposal := search.propose(space, outcomes, GOAL, 0, grid=True, blocks=1):
        outcomes = [*outcomes, look(proposal.candidate, like[proposal.candidate], half, proposal.block)]
        found.append(proposal.block)
        assert len(found) < 20
    return found


def test_a_clear_gain_is_confirmed_at_once_and_what_may_be_one_takes_turns_before() -> None:
    fresh = search.blocks.last_round(SPACE, GOAL) + 1
    assert blocks_after(side_by_side((400.0, 800.0), blocks=0), {OWN: 400.0, OTHER: 800.0}, 0.05) == [fresh, fresh]
    doubtful = blocks_after(side_by_side((400.0, 440.0), 0.09, blocks=0), {OWN: 400.0, OTHER: 440.0}, 0.09)
    assert doubtful[:2] == [1, 1]
    assert doubtful[-1] == fresh


def test_what_no_block_can_prove_costs_no_start_of_the_script() -> None:
    assert blocks_after(side_by_side((400.0, 404.0), blocks=0), {OWN: 400.0, OTHER: 404.0}, 0.05) == []
    assert blocks_after(side_by_side((990.0, 990.0), 0.01, blocks=0), {OWN: 990.0, OTHER: 990.0}, 0.01) == []


def test_where_intervals_are_wide_blocks_are_added_before_anything_is_said() -> None:
    rounds = search.blocks.last_round(SPACE, GOAL)
    noisy = blocks_after(side_by_side((400.0, 416.0), 0.6, blocks=0), {OWN: 400.0, OTHER: 416.0}, 0.6)
    assert sorted(set(noisy)) == list(range(1, rounds + 1))


def test_the_machines_speed_makes_intervals_no_wider_where_the_loader_waits() -> None:
    """As in a sweep of a script whose samples sleep, on two cores with two other programs: its rates were 84, 86 and 87
    while the decode loop ran at 37 to 57 MB/s, and its gain was stated as 0.06 to 34.8."""
    speeds = (44.2, 36.8, 57.0, 46.5, 53.8, 38.8)
    waiting = {"cores_used": 0.02, "run_delay_frac": 0.07, "accelerator_idle_frac": 0.9, "within_error_frac": 0.015}
    looks = [(OWN, 84.1, 0), (OTHER, 167.0, 0), (OWN, 86.2, 1), (OTHER, 172.0, 1), (OWN, 86.7, 2), (OTHER, 170.0, 2)]

    def judge(**changes: float) -> Edit:
        return judged([
            look(candidate, rate, 0.4, block, **{**waiting, **changes}, machine_speed_before=speed,
                 machine_speed_after=speed)
            for (candidate, rate, block), speed in zip(looks, speeds, strict=True)
        ])  # fmt: skip

    assert math.log(judge().gain_ci95[1] / judge().gain) < 0.15
    computing = judge(cores_used=1.0)
    assert math.log(computing.gain_ci95[1] / computing.gain) > 0.4


def test_one_disturbed_block_does_not_hide_what_the_others_show() -> None:
    steady = side_by_side((400.0, 520.0), half=0.03, blocks=3)
    disturbed = [*steady[:-1], look(OTHER, 200.0, 0.03, 3)]
    assert judged(disturbed).gain == pytest.approx(1.3)
    assert (judged(disturbed).blocks, judged(disturbed).verdict) == (2, FASTER)
    rounds = [replace(one, forked=one.block < 3) for one in disturbed]
    assert not judged(rounds).is_proven, "the fresh start did not confirm what the turns in one process have shown"
    both = [*side_by_side((400.0, 520.0), half=0.03, blocks=1), look(OWN, 400.0, 0.03, 2), look(OTHER, 200.0, 0.03, 2)]
    assert not judged(both).is_proven, "which of two blocks was disturbed is not known"


def test_one_more_fresh_start_follows_where_the_first_left_undecided_what_it_may_prove() -> None:
    """The gain was clear at first, and other programs disturbed the confirmation; none follows on the second."""
    first, fresh = side_by_side((400.0, 800.0), blocks=0), search.blocks.last_round(SPACE, GOAL) + 1

    def starts_after(rate: float, half: float) -> list[int]:
        space, outcomes, numbers = replace(SPACE, workers=(2, 4)), list(first), []
        while proposal := search.propose(space, outcomes, GOAL, 0, grid=True):
            like = rate if proposal.candidate == OTHER else 400.0
            outcomes.append(look(proposal.candidate, like, half, proposal.block))
            numbers.append(proposal.block)
        return numbers

    assert starts_after(800.0, 0.05) == [fresh, fresh]
    assert starts_after(600.0, 0.3) == [fresh, fresh, fresh + 1, fresh + 1]
    assert starts_after(404.0, 0.05) == [fresh, fresh], "no further one can prove it"
