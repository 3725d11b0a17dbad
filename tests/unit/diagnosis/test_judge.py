from __future__ import annotations

import itertools
import random
from dataclasses import replace
from typing import Any

import pytest

from pipetune.diagnosis import causes
from pipetune.diagnosis.judge import judge
from pipetune.records.evidence import Signal
from pipetune.records.observation import (
    DISK,
    EMULATED,
    LOADER_WAIT,
    LOCK,
    NETWORK,
    PIPE,
    RUNNING,
    SLEEP,
    GpuReading,
    RankReading,
)
from pipetune.sampler.stacks import activity as act
from tests.unit.diagnosis import scenes
from tests.unit.diagnosis.scenes import judged, scene, shares_of, team, with_stacks
from tests.watch_fakes import main_reading, rank_readings, task_reading, workers

#: Every kind of job, with its cause.
JOBS = {
    "decodes": (scenes.DECODES, causes.CPU_DECODE),
    "waits for cores": (scenes.STARVED, causes.CPU_STARVED),
    "reads a disk": (scenes.READS_DISK, causes.DISK),
    "fetches": (scenes.FETCHES, causes.NETWORK),
    "loads without workers": (scenes.LOADS_INLINE, causes.NO_WORKERS),
    "starts workers": (scenes.STARTS_WORKERS, causes.WORKER_START),
    "Python": (scenes.PYTHON, causes.MAIN_PYTHON),
    "copies": (scenes.COPIES, causes.H2D_COPY),
    "small steps": (scenes.SMALL_STEPS, causes.SMALL_BATCH),
    "underfilled": (scenes.UNFILLED, causes.SMALL_BATCH),
    "communicates": (scenes.COMMUNICATES, causes.COMMUNICATION),
    "saves": (scenes.SAVES, causes.CHECKPOINT),
    "healthy": (scenes.HEALTHY, causes.HEALTHY),
    "asleep somehow": (scenes.ASLEEP_SOMEHOW, causes.UNDETERMINED),
    "emulated": (scenes.EMULATED_DECODES, causes.CPU_DECODE),
}


@pytest.mark.parametrize(("readings", "cause"), JOBS.values(), ids=list(JOBS))
def test_each_kind_of_job_gets_its_cause(readings: list[RankReading], cause: str) -> None:
    assert judged(readings).cause == cause


@pytest.mark.parametrize(("readings", "cause"), JOBS.values(), ids=list(JOBS))
def test_shares_sum_to_one_and_lie_in_their_intervals(readings: list[RankReading], cause: str) -> None:
    verdict = judged(readings)

    if cause == causes.HEALTHY:
        assert verdict.shares == ()
        return
    assert sum(share.share for share in verdict.shares) == pytest.approx(1.0, abs=1e-9)
    assert all(share.ci95[0] <= share.share <= share.ci95[1] for share in verdict.shares)
    assert [share.share for share in verdict.shares] == sorted((s.share for s in verdict.shares), reverse=True)
    assert all(share.share > 0 for share in verdict.shares)


@pytest.mark.parametrize(("readings", "cause"), JOBS.values(), ids=list(JOBS))
def test_the_lost_share_lies_in_its_interval(readings: list[RankReading], cause: str) -> None:
    verdict = judged(readings)

    assert verdict.lost_frac is not None
    assert verdict.lost_ci95 is not None
    assert 0 <= verdict.lost_ci95[0] <= verdict.lost_frac <= verdict.lost_ci95[1] <= 1
    assert cause == causes.HEALTHY or verdict.lost_frac == pytest.approx(0.8 if readings is scenes.UNFILLED else 0.6)


@pytest.mark.parametrize(("readings", "cause"), JOBS.values(), ids=list(JOBS))
@pytest.mark.parametrize("iowait_pct", [None, 0.0, 37.0, 100.0])
def test_iowait_changes_no_verdict(readings: list[RankReading], cause: str, iowait_pct: float | None) -> None:
    def decided(**machine: Any) -> object:
        verdict = judged(readings, **machine)
        return verdict.cause, verdict.shares, verdict.confidence, verdict.sentence, verdict.lost_ci95, verdict.missing

    # What is not busy is idle or iowait, and nobody can say which.
    idle_pct = 100.0 - (iowait_pct or 0.0)
    changed = decided(cpu_busy_pct=0.0, cpu_idle_pct=idle_pct, cpu_iowait_pct=iowait_pct)

    assert changed == decided(cpu_busy_pct=0.0, cpu_idle_pct=100.0, cpu_iowait_pct=0.0)
    assert changed[0] == cause  # type: ignore[index]


@pytest.mark.parametrize("split", [(0.0, 70.0), (35.0, 35.0), (70.0, 0.0)])
def test_iowait_changes_no_advice(split: tuple[float, float]) -> None:
    iowait_pct, idle_pct = split

    assert judged(scenes.DECODES, cpu_idle_pct=idle_pct, cpu_iowait_pct=iowait_pct).advice == (
        judged(scenes.DECODES).advice
    )


def test_starvation_is_distinguished_from_decoding_under_a_quota() -> None:
    verdict = judged(scenes.STARVED, cores=2.0, quota_cores=2.0, throttled_frac=0.5)

    assert verdict.cause == causes.CPU_STARVED
    assert verdict.advice is not None
    assert "quota" in verdict.advice


def test_a_main_thread_that_waits_for_a_core_is_starved() -> None:
    readings = scene(main=replace(scenes.ON_CORE, cpu_frac=0.3, run_delay_frac=0.65), workers=team(scenes.IDLE_WORKER))

    assert judged(readings).cause == causes.CPU_STARVED


def test_mixed_causes_are_both_named() -> None:
    half = [replace(reading, workers=team(scenes.DISK_WORKER)) for reading in scenes.DECODES[::2]]
    verdict = judged([*half, *scenes.DECODES[::2]])

    shares = shares_of(verdict)
    assert shares[causes.CPU_DECODE] == pytest.approx(0.6, abs=0.1)
    assert shares[causes.DISK] == pytest.approx(0.4, abs=0.1)
    assert causes.title_of(causes.DISK) in verdict.sentence
    assert causes.title_of(causes.CPU_DECODE) in verdict.sentence


@pytest.mark.parametrize("source", scenes.SOURCES)
def test_loader_and_python_share_the_loss(source: str) -> None:
    idle_now = True if source == EMULATED else None
    loading = scene(0.5, 30, source=source, idle_now=idle_now, workers=workers(4))
    computing = scene(0.5, 10, source=source, idle_now=idle_now, main=scenes.ON_CORE, workers=workers(4))

    shares = shares_of(judged([*loading, *computing]))

    # The loader's wait, three quarters of the time, has caused all of a loss of half the time: without, none.
    assert shares[causes.CPU_DECODE] == pytest.approx(1.0, abs=0.03)


@pytest.mark.parametrize("source", scenes.SOURCES)
def test_waiting_for_the_loader_beside_a_busy_accelerator_explains_no_checkpoint(source: str) -> None:
    idle_now = False if source == EMULATED else None
    fed = scene(1.0, 40, source=source, idle_now=idle_now, workers=workers(4))
    saving = scene(
        0.0, 10, source=source, idle_now=True if source == EMULATED else None, workers=team(scenes.IDLE_WORKER),
        main=replace(scenes.ON_CORE, write_chars=50_000_000),
    )  # fmt: skip

    assert judged([*fed, *saving]).cause == causes.CHECKPOINT


@pytest.mark.parametrize("activity", [act.DEVICE_WAIT])
@pytest.mark.parametrize("source", scenes.SOURCES)
def test_a_wait_for_the_accelerator_is_never_its_cause(activity: str, source: str) -> None:
    idle_now = True if source == EMULATED else None
    readings = with_stacks(scene(source=source, idle_now=idle_now, main=scenes.ON_CORE), activity)

    verdict = judged(readings)

    assert verdict.cause == causes.UNDETERMINED
    assert shares_of(verdict) == {causes.UNDETERMINED: 1.0}


def test_one_stack_beside_many_device_waits_decides_the_share_but_not_surely() -> None:
    readings = with_stacks(scene(0.9, main=scenes.ON_CORE, workers=()), act.DEVICE_WAIT)
    readings[7] = replace(readings[7], stack=scenes.stack(act.COPY))

    verdict = judged(readings)

    assert shares_of(verdict) == {causes.H2D_COPY: 1.0}
    assert verdict.shares[0].ci95[0] < 0.3  # one reading is all that it rests on
    assert verdict.confidence == "medium"


@pytest.mark.parametrize("count", [1, 2, causes.MIN_READINGS - 1])
@pytest.mark.parametrize(("readings", "cause"), JOBS.values(), ids=list(JOBS))
def test_a_few_readings_decide_nothing(readings: list[RankReading], cause: str, count: int) -> None:
    verdict = judged(readings[:count])

    assert verdict.cause == causes.UNDETERMINED
    assert verdict.confidence == "low"
    assert str(count) in verdict.sentence
    assert verdict.advice is None


def test_no_readings_are_no_verdict() -> None:
    assert judge([], []) is None
    assert judge(rank_readings([0.5], interval_s=0.0), []) is None


def test_no_machine_readings_change_no_cause() -> None:
    verdict = judge(scenes.DECODES, [])

    assert verdict is not None
    assert verdict.cause == causes.CPU_DECODE


def test_a_loss_without_a_name_is_undetermined_and_says_what_is_missing() -> None:
    readings = [
        replace(reading, workers=team(replace(task_reading(state="S", wait="other", wchan=None), cpu_frac=0.02)))
        for reading in scenes.ASLEEP_SOMEHOW
    ]
    readings = [replace(reading, main=replace(reading.main, run_delay_frac=None)) for reading in readings]

    around = {"psi_io_some_pct": None, "psi_scope": None}
    verdict = judged(readings, **around)

    assert verdict.cause == causes.UNDETERMINED
    assert verdict.confidence == "low"
    assert verdict.missing_signals == (Signal.PRESSURE, Signal.RUN_DELAY, Signal.WAIT_CHANNEL)
    assert len(verdict.missing) == 3


def test_missing_stacks_are_explained_only_where_one_would_help() -> None:
    problem = "stacks: py-spy is not installed"

    lost = judge(scenes.DECODES, [], stack_problem=problem)
    healthy = judge(scenes.HEALTHY, [], stack_problem=problem)
    seen = judge(scenes.COPIES, [], stack_problem=problem)

    assert lost is not None
    assert healthy is not None
    assert seen is not None
    assert problem in lost.missing
    assert problem not in healthy.missing
    assert problem not in seen.missing


def test_exact_knowledge_of_idleness_weighs_only_the_idle_instants() -> None:
    # The loop computes beside a device that works off its queue: that is no loss. Idle, it waits for its loader.
    idle = scene(0.6, 20, source=EMULATED, idle_now=True, workers=workers(4))
    busy = scene(0.6, 60, source=EMULATED, idle_now=False, workers=workers(4), main=scenes.ON_CORE)
    readings = [reading for pair in zip(idle, busy[:20], busy[20:40], busy[40:], strict=True) for reading in pair]

    verdict = judged(readings)

    assert shares_of(verdict) == pytest.approx({causes.CPU_DECODE: 0.95 / 0.97, causes.CPU_STARVED: 0.02 / 0.97})


def test_a_few_idle_instants_cannot_stand_for_the_whole() -> None:
    idle = scene(0.6, 3, source=EMULATED, idle_now=True, workers=workers(4))
    busy = scene(0.6, 37, source=EMULATED, idle_now=False, workers=workers(4), main=scenes.ON_CORE)

    assert judged([*idle, *busy]).cause == causes.UNDETERMINED


def test_thread_workers_count_like_processes() -> None:
    threads = workers(4, name="pt_thread_data_")
    locked = main_reading(wait=LOCK, wchan="futex_do_wait")

    verdict = judged(scene(workers=threads, worker_kind="thread", youngest_worker_s=None, main=locked))

    assert verdict.cause == causes.CPU_DECODE


def test_a_lock_is_the_loader_where_a_thread_copies_to_pinned_memory() -> None:
    locked = main_reading(wait=LOCK, wchan="futex_do_wait")
    pin = task_reading(name="pt_data_pin", state="S", wait=PIPE)

    assert judged(scene(main=locked, workers=workers(4), pin=pin)).cause == causes.CPU_DECODE
    assert judged(scene(main=locked, workers=workers(4), pin=None)).cause == causes.UNDETERMINED


def test_any_mix_of_readings_gives_a_whole_verdict() -> None:
    rng = random.Random(20)
    waits = [("S", PIPE), ("S", LOCK), ("S", SLEEP), ("D", DISK), ("S", NETWORK), ("R", RUNNING), ("S", "other")]
    seen = set()
    for _ in range(400):
        readings = []
        for number in range(rng.choice([1, 5, 8, 9, 25, 60])):
            state, wait = rng.choice(waits)
            count = rng.choice([0, 1, 3])
            task_state, task_wait = rng.choice(waits)
            readings += rank_readings(
                [rng.choice([None, rng.random(), 0.0, 1.0])],
                t_ns=10**9 * (number + 1),
                interval_s=rng.choice([0.5, 1.7]),
                source=rng.choice(["nvml", EMULATED, LOADER_WAIT]),
                active_frac=rng.choice([None, 0.05]),
                idle_now=rng.choice([None, True, False]),
                main=main_reading(
                    state=state, wait=wait, cpu_frac=rng.random() * 1.5, write_chars=rng.choice([None, 10**7])
                ),
                workers=workers(count, state=task_state, wait=task_wait, cpu_frac=rng.random() * 3),
                worker_kind=rng.choice(["process", "thread"]) if count else None,
                youngest_worker_s=rng.choice([None, 0.1, 9.0]),
                has_sockets=rng.choice([None, True, False]),
                stack=rng.choice([None, None, scenes.stack(rng.choice([act.PYTHON, act.LOADER, act.DEVICE_WAIT]))]),
            )
        verdict = judged(readings, net_rx_bytes=rng.choice([None, 10**7]))
        seen.add(verdict.cause)

        assert verdict.lost_frac is not None
        assert verdict.lost_ci95 is not None
        assert 0 <= verdict.lost_ci95[0] <= verdict.lost_frac <= verdict.lost_ci95[1] <= 1
        assert bool(verdict.shares) == (verdict.lost_frac >= causes.HEALTHY_LOST)
        if verdict.shares:
            assert sum(share.share for share in verdict.shares) == pytest.approx(1.0, abs=1e-9)
        for share in verdict.shares:
            assert 0 <= share.ci95[0] <= share.share <= share.ci95[1] <= 1
        assert sum(verdict.activities.values()) == pytest.approx(1.0)
    assert len(seen) > 5


def test_every_cause_but_not_started_is_reachable() -> None:
    named = {judged(readings).cause for readings, _ in JOBS.values()}
    named.add(judged(scene(0.99, main=scenes.ON_CORE, gpu=GpuReading(slowed_pct=40.0))).cause)
    named.add(judged(with_stacks(scene(0.4, main=scenes.ON_CORE, sharing=scenes.NOTEBOOK), act.DEVICE_WAIT)).cause)

    named_by_watch = {cause.name for cause in causes.CAUSES.values() if causes.WATCH in cause.named_by}
    assert named | {causes.NOT_STARTED} == named_by_watch


def test_pairs_of_jobs_give_both_causes() -> None:
    kinds = {name: job for name, job in JOBS.items() if job[1] not in (causes.HEALTHY, causes.UNDETERMINED)}
    exact = {"emulated", "underfilled", "starts workers"}
    # Without a stack these cannot be distinguished from what the other one's stacks show.
    alike = [{"Python", "copies"}, {"Python", "small steps"}]
    for (one, (first, cause)), (other, (second, cause_too)) in itertools.combinations(kinds.items(), 2):
        if exact & {one, other} or cause == cause_too or {one, other} in alike:
            continue

        verdict = judged([*first[:20], *second[:20]])

        shares = shares_of(verdict)
        assert min(shares.get(cause, 0.0), shares.get(cause_too, 0.0)) > 0.1, (one, other, shares)
