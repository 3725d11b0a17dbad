"""Jobs with one plain cause each, as watch would read them: what the tests of this folder judge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pipetune.diagnosis.judge import judge
from pipetune.records.observation import (
    DISK,
    EMULATED,
    LOCK,
    NETWORK,
    NVML,
    PIPE,
    RUNNING,
    SLEEP,
    GpuSharing,
    MachineReading,
    RankReading,
    StackSample,
    TaskReading,
)
from pipetune.records.watch import Verdict
from pipetune.sampler.stacks import activity as act
from tests.watch_fakes import PID, machine_readings, main_reading, rank_readings, task_reading, workers

COUNT = 40
#: Main threads.
WAITS_FOR_LOADER = main_reading()
ON_CORE = main_reading(state="R", wait=RUNNING, wchan=None, cpu_frac=0.98, read_chars=0, write_chars=0)
#: A worker that has nothing to do: asleep until the main thread sends it the next indices.
IDLE_WORKER = task_reading(state="S", wait=PIPE, wchan="poll_schedule_timeout", cpu_frac=0.02, run_delay_frac=0.0)
#: One that reads from a disk: 70 % of its time, for ever so little from the processor.
DISK_WORKER = task_reading(
    state="D", wait=DISK, wchan="folio_wait_bit_common", cpu_frac=0.2, run_delay_frac=0.01, read_bytes=4_000_000
)
NETWORK_WORKER = task_reading(
    state="S", wait=NETWORK, wchan="wait_woken", cpu_frac=0.2, run_delay_frac=0.01, read_bytes=0
)


def stack(activity: str, where: str = "step (train.py:7)") -> StackSample:
    return StackSample(pid=PID, activity=activity, where=where)


def with_stacks(readings: Sequence[RankReading], *activities: str, every: int = 1) -> list[RankReading]:
    """Each ``every``-th reading has a stack; the activities take turns."""
    return [
        replace(reading, stack=stack(activities[number // every % len(activities)])) if number % every == 0 else reading
        for number, reading in enumerate(readings)
    ]


def scene(busy: float | None = 0.4, count: int = COUNT, **changes: Any) -> list[RankReading]:
    """Readings that are all alike, at a GPU that is busy so much."""
    return rank_readings([busy] * count, **changes)


def team(task: TaskReading, count: int = 4) -> tuple[TaskReading, ...]:
    """So many workers that do the same."""
    return tuple(replace(task, pid=PID + 1 + number) for number in range(count))


def judged(readings: Sequence[RankReading], *, worker_stacks: dict[str, int] | None = None, **machine: Any) -> Verdict:
    """The verdict of readings on a machine that is otherwise idle."""
    calm = {"cpu_busy_pct": 30.0, "cpu_idle_pct": 70.0, "cores": 8.0, "psi_cpu_some_pct": 1.0}
    around: list[MachineReading] = machine_readings(len(readings), **(calm | machine))
    verdict = judge(readings, around, worker_stacks=worker_stacks)
    assert verdict is not None
    return verdict


def shares_of(verdict: Verdict) -> dict[str, float]:
    return {share.cause: share.share for share in verdict.shares}


DECODES = scene(workers=workers(4))
READS_DISK = scene(workers=team(DISK_WORKER))
FETCHES = scene(workers=team(NETWORK_WORKER), has_sockets=True)
LOADS_INLINE = scene(workers=(), worker_kind=None, youngest_worker_s=None, main=replace(ON_CORE, read_chars=20_000_000))
STARVED = scene(workers=workers(4, cpu_frac=0.4, run_delay_frac=0.58))
PYTHON = scene(main=ON_CORE, workers=team(IDLE_WORKER))
SAVES = scene(main=replace(ON_CORE, write_chars=50_000_000), workers=team(IDLE_WORKER))
STARTS_WORKERS = scene(workers=workers(4), youngest_worker_s=0.3)
COPIES = with_stacks(PYTHON, act.COPY, every=3)
SMALL_STEPS = with_stacks(PYTHON, act.MODEL, every=3)
COMMUNICATES = with_stacks(scene(main=main_reading(wait=LOCK, wchan="futex_do_wait")), act.COMMUNICATION, every=3)
UNFILLED = scene(0.97, active_frac=0.2, main=ON_CORE, workers=team(IDLE_WORKER))
HEALTHY = scene(0.99, main=ON_CORE, workers=team(IDLE_WORKER))
ASLEEP_SOMEHOW = scene(main=main_reading(wait=SLEEP, wchan="hrtimer_nanosleep"))
EMULATED_DECODES = scene(source=EMULATED, idle_now=True, active_frac=0.4, workers=workers(4))
SOURCES = (NVML, EMULATED)
#: Another process on the GPU of the job.
NOTEBOOK = GpuSharing(processes=("notebook (4711)",), others_frac=0.6)
