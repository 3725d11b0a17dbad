from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from pipetune.diagnosis import causes
from pipetune.diagnosis.attribution import attribute_loss
from pipetune.diagnosis.judge import judge
from pipetune.records.observation import EMULATED, LOADER_WAIT, NVML, RankReading
from pipetune.records.watch import Verdict
from pipetune.sampler.stacks import activity as act
from pipetune.stats.intervals import wilson
from tests.unit.diagnosis import scenes
from tests.unit.diagnosis.scenes import scene, with_stacks
from tests.unit.diagnosis.worlds import Truth, World, sampled
from tests.watch_fakes import machine_reading, main_reading, rank_readings, workers

#: Coverage that is asked of 95 % intervals in that many worlds: three standard errors below. Such a window's own true
#: shares are estimated from a sample of it, so most worlds do better.
WORLDS = 80
MIN_COVERED = 0.95 - 3 * math.sqrt(0.95 * 0.05 / WORLDS)

DECODE_AND_DISK = {"decodes": 0.5, "reads": 0.4, "has nothing to do": 0.1}
STARVED_AND_NETWORK = {"decodes": 0.3, "is starved": 0.3, "fetches": 0.3, "has nothing to do": 0.1}
KINDS = {
    "the loader beside Python": World(main={act.DEVICE_WAIT: 0.5, act.LOADER: 0.3, act.PYTHON: 0.2}),
    "little is lost": World(main={act.DEVICE_WAIT: 0.85, act.LOADER: 0.08, act.PYTHON: 0.07}),
    "much is lost": World(main={act.DEVICE_WAIT: 0.1, act.LOADER: 0.5, act.PYTHON: 0.4}),
    "a loader that decodes and reads": World(
        main={act.DEVICE_WAIT: 0.4, act.LOADER: 0.5, act.PYTHON: 0.1}, work=DECODE_AND_DISK
    ),
    "a loader with three causes": World(
        main={act.DEVICE_WAIT: 0.5, act.LOADER: 0.4, act.COPY: 0.1}, work=STARVED_AND_NETWORK
    ),
    "Python and copies": World(main={act.DEVICE_WAIT: 0.5, act.COPY: 0.25, act.PYTHON: 0.25}),
    "stacks at every fifth reading": World(
        main={act.DEVICE_WAIT: 0.5, act.COPY: 0.25, act.PYTHON: 0.25}, stack_every=5
    ),
    "four causes": World(
        main={act.DEVICE_WAIT: 0.3, act.LOADER: 0.25, act.COPY: 0.15, act.PYTHON: 0.2, act.COMMUNICATION: 0.1},
        stack_every=2,
    ),
    "steps that are longer than a reading": World(
        main={act.DEVICE_WAIT: 0.5, act.LOADER: 0.3, act.PYTHON: 0.2}, cycle_s=3.0
    ),
    "no stacks": World(main={act.DEVICE_WAIT: 0.5, act.LOADER: 0.25, act.PYTHON: 0.25}, max_stacks=0),
}  # fmt: skip


def _covered(world: World) -> tuple[float, float, float, float]:
    """Shares of the worlds whose shares, and whose lost time, lie in their intervals; mean error; right headlines."""
    inside = count = lost = right = clear = 0
    error = 0.0
    for seed in range(WORLDS):
        readings, truth = sampled(world, seed)
        verdict = _judged(readings)
        for cause, ci95, share in _found(verdict, truth):
            inside += ci95[0] <= truth.shares.get(cause, 0.0) <= ci95[1]
            error += abs(share - truth.shares.get(cause, 0.0))
            count += 1
        assert verdict.lost_ci95 is not None
        lost += verdict.lost_ci95[0] <= truth.lost_frac <= verdict.lost_ci95[1]
        top, second, *_ = sorted([*truth.shares.values(), 0.0], reverse=True)
        if top - second > 0.25:
            clear += 1
            right += truth.shares.get(verdict.cause) == top
    return inside / count, lost / WORLDS, error / count, right / clear if clear else 1.0


def _judged(readings: Sequence[RankReading]) -> Verdict:
    verdict = judge(
        readings, [machine_reading(t_ns=reading.t_ns, interval_s=reading.interval_s) for reading in readings]
    )
    assert verdict is not None
    return verdict


def _found(verdict: Verdict, truth: Truth) -> list[tuple[str, tuple[float, float], float]]:
    seen = {share.cause: share for share in verdict.shares}
    return [
        (cause, seen[cause].ci95, seen[cause].share) if cause in seen else (cause, wilson(0.0, 30), 0.0)
        for cause in sorted({*seen, *truth.shares})
    ]


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("source", [NVML, EMULATED])
@pytest.mark.parametrize("world", KINDS.values(), ids=list(KINDS))
def test_intervals_hold_the_truth_as_often_as_they_say(world: World, source: str) -> None:
    covered, lost_covered, error, right = _covered(replace(world, source=source))

    assert covered >= MIN_COVERED
    assert lost_covered >= MIN_COVERED
    assert error < 0.15
    assert right >= 0.9


@pytest.mark.thorough
@pytest.mark.parametrize("source", [NVML, EMULATED])
def test_readings_interpreted_by_few_stacks_count_no_more_than_these(source: str) -> None:
    world = World(main={act.DEVICE_WAIT: 0.5, act.COPY: 0.25, act.PYTHON: 0.25}, max_stacks=8, source=source)

    covered, _, _, _ = _covered(world)

    # Of so few stacks that all agree, Wilson's interval is too narrow: at one half it holds the truth 7 times of 8.
    assert covered >= 0.8


@pytest.mark.thorough
def test_a_random_job_is_judged_by_its_largest_cause() -> None:
    rng = random.Random(7)
    kinds = [act.LOADER, act.PYTHON, act.COPY, act.MODEL, act.COMMUNICATION]
    wrong = []
    for seed in range(80):
        fracs = {kind: rng.random() ** 3 for kind in rng.sample(kinds, rng.choice([1, 2, 3]))}
        lost = rng.uniform(0.1, 0.95)
        whole = sum(fracs.values())
        main = {act.DEVICE_WAIT: 1 - lost} | {kind: lost * frac / whole for kind, frac in fracs.items()}
        readings, truth = sampled(World(main=main, source=rng.choice([NVML, EMULATED])), seed)

        verdict = _judged(readings)

        top = max(truth.shares, key=lambda cause: truth.shares[cause])
        others = [share for cause, share in truth.shares.items() if cause != top]
        if truth.shares[top] - max(others, default=0.0) > 0.3 and verdict.cause != top:
            wrong.append((seed, top, verdict.cause))
    assert wrong == []


def test_a_high_confidence_is_seldom_wrong() -> None:
    rng = random.Random(11)
    high = wrong = 0
    for seed in range(150):
        python = rng.uniform(0.1, 0.4)
        world = World(
            main={act.DEVICE_WAIT: 0.5, act.LOADER: 0.5 - python, act.PYTHON: python},
            readings=rng.choice([10, 20, 60]),
            source=rng.choice([NVML, EMULATED]),
        )
        readings, truth = sampled(world, seed)
        verdict = _judged(readings)
        if verdict.confidence == "high":
            high += 1
            wrong += verdict.cause != max(truth.shares, key=lambda cause: truth.shares[cause])
    assert high > 20
    assert wrong <= 0.05 * high


def test_readings_count_by_the_time_they_cover() -> None:
    long, short = rank_readings([0.0], interval_s=9.0), rank_readings([1.0], interval_s=1.0)

    assert attribute_loss([*long, *short]).idle_frac == pytest.approx(0.9)


def test_the_source_is_that_of_most_readings_and_readings_without_it_are_left_out() -> None:
    lost_gpu = rank_readings([None] * 4, source=LOADER_WAIT)

    loss = attribute_loss([*rank_readings([0.25] * 12), *lost_gpu])

    assert loss.source == NVML
    assert loss.idle_frac == pytest.approx(0.75)
    assert loss.util_frac == pytest.approx(0.25)
    assert loss.seconds == pytest.approx(6.0)


def test_an_interval_rests_on_at_least_ten_readings() -> None:
    assert attribute_loss(rank_readings([0.5] * 9)).idle_ci95 == (0.0, 1.0)
    assert attribute_loss(rank_readings([0.5] * 10)).idle_ci95 == pytest.approx((0.5, 0.5))


def test_neighbours_that_resemble_each_other_widen_the_interval() -> None:
    rng = random.Random(3)
    shuffled = [0.0] * 50 + [1.0] * 50
    in_blocks = rank_readings([0.0] * 50 + [1.0] * 50)
    rng.shuffle(shuffled)

    def width(readings: Sequence[RankReading]) -> float:
        low, high = attribute_loss(readings).idle_ci95
        return high - low

    assert width(in_blocks) > 2 * width(rank_readings(shuffled))


def test_a_worker_that_is_gone_for_a_moment_is_being_started() -> None:
    between = with_stacks(scene(0.0, 20, workers=(), worker_kind=None), act.LOADER)

    assert attribute_loss([*scene(1.0, 20, workers=workers(2)), *between]).shares[causes.WORKER_START] > 0.95
    both = attribute_loss([*scene(0.0, 20, workers=workers(2)), *between]).shares
    assert both[causes.WORKER_START] == pytest.approx(0.5, abs=0.03)
    assert both[causes.CPU_DECODE] == pytest.approx(0.5, abs=0.03)


def test_a_loader_without_workers_to_be_seen_is_undetermined() -> None:
    readings = with_stacks(scene(0.2, 20, workers=(), worker_kind=None), act.LOADER)  # threads without a name

    assert attribute_loss(readings).shares == {causes.UNDETERMINED: 1.0}


def test_a_full_queue_hides_python_but_no_wait_for_data() -> None:
    # NVML, half of the time idle. The loop waits for data half of the time and computes in the other half, beside a
    # device that works off its queue, and the readings' intervals mix both.
    waiting = rank_readings([0.5] * 20, workers=workers(4))
    computing = rank_readings([0.5] * 20, workers=workers(4), main=scenes.ON_CORE)
    readings = [reading for pair in zip(waiting, computing, strict=True) for reading in pair]

    shares = attribute_loss(readings).shares

    assert shares[causes.CPU_DECODE] + shares[causes.CPU_STARVED] == pytest.approx(1.0)


def test_shares_that_are_next_to_nothing_are_left_out_and_the_rest_is_whole() -> None:
    tired = workers(4, cpu_frac=0.9996, run_delay_frac=0.0003)
    shares = attribute_loss(scene(workers=tired)).shares

    assert shares == pytest.approx({causes.CPU_DECODE: 1.0})


def test_nothing_lost_is_no_division_by_zero() -> None:
    loss = attribute_loss(rank_readings([1.0] * 20))

    assert loss.idle_frac == 0
    assert loss.lost_frac == 0
    assert loss.util_frac == 1


def test_a_device_that_is_only_underfilled_loses_to_small_steps_alone() -> None:
    loss = attribute_loss(rank_readings([1.0] * 20, active_frac=0.3, main=main_reading()))

    assert loss.unfilled_frac == pytest.approx(0.7)
    assert loss.shares == pytest.approx({causes.SMALL_BATCH: 1.0})
    assert loss.readings == 20
