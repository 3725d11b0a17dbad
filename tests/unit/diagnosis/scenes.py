"""Jobs with one plain cause each, as watch would look at them: what the tests of this folder judge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pipetune.diagnosis.judge import judge
from pipetune.records.watch import (
    DISK,
    EMULATED,
    LOCK,
    NETWORK,
    NVML,
    PIPE,
    RUNNING,
    SLEEP,
    MachineLook,
    RankLook,
    StackLook,
    TaskLook,
    Verdict,
)
from pipetune.sampler.stacks import activity as act
from tests.watch_fakes import PID, machine_looks, main_look, rank_looks, task_look, workers

COUNT = 40
#: Main threads.
WAITS_FOR_LOADER = main_look()
ON_CORE = main_look(state="R", wait=RUNNING, wchan=None, cpu_frac=0.98, read_chars=0, write_chars=0)
#: A worker that has nothing to do: asleep until the main thread sends it the next indices.
IDLE_WORKER = task_look(state="S", wait=PIPE, wchan="poll_schedule_timeout", cpu_frac=0.02, run_delay_frac=0.0)
#: One that reads from a disk: 70 % of its time, for ever so little from the processor.
DISK_WORKER = task_look(
    state="D", wait=DISK, wchan="folio_wait_bit_common", cpu_frac=0.2, run_delay_frac=0.01, read_bytes=4_000_000
)
NETWORK_WORKER = task_look(state="S", wait=NETWORK, wchan="wait_woken", cpu_frac=0.2, run_delay_frac=0.01, read_bytes=0)


def stack(activity: str, where: str = "step (train.py:7)") -> StackLook:
    return StackLook(pid=PID, activity=activity, where=where)


def with_stacks(looks: Sequence[RankLook], *activities: str, every: int = 1) -> list[RankLook]:
    """Each ``every``-th look has a stack; the activities take turns."""
    return [
        replace(look, stack=stack(activities[number // every % len(activities)])) if number % every == 0 else look
        for number, look in enumerate(looks)
    ]


def scene(busy: float | None = 0.4, count: int = COUNT, **changes: Any) -> list[RankLook]:
    """Looks that are all alike, at a GPU that is busy so much."""
    return rank_looks([busy] * count, **changes)


def team(task: TaskLook, count: int = 4) -> tuple[TaskLook, ...]:
    """So many workers that do the same."""
    return tuple(replace(task, pid=PID + 1 + number) for number in range(count))


def judged(looks: Sequence[RankLook], *, worker_stacks: dict[str, int] | None = None, **machine: Any) -> Verdict:
    """The verdict of looks on a machine that is otherwise idle."""
    calm = {"cpu_busy_pct": 30.0, "cpu_idle_pct": 70.0, "cores": 8.0, "psi_cpu_some_pct": 1.0}
    around: list[MachineLook] = machine_looks(len(looks), **(calm | machine))
    verdict = judge(looks, around, worker_stacks=worker_stacks)
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
COMMUNICATES = with_stacks(scene(main=main_look(wait=LOCK, wchan="futex_do_wait")), act.COMMUNICATION, every=3)
UNFILLED = scene(0.97, active_frac=0.2, main=ON_CORE, workers=team(IDLE_WORKER))
HEALTHY = scene(0.99, main=ON_CORE, workers=team(IDLE_WORKER))
ASLEEP_SOMEHOW = scene(main=main_look(wait=SLEEP, wchan="hrtimer_nanosleep"))
EMULATED_DECODES = scene(source=EMULATED, idle_now=True, active_frac=0.4, workers=workers(4))
SOURCES = (NVML, EMULATED)
