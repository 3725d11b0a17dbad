from __future__ import annotations

import pytest

from pipetune.diagnosis import causes
from pipetune.records.evidence import Signal, SignalValue
from pipetune.records.observation import PIPE, StackSample
from pipetune.records.watch import Verdict
from pipetune.sampler.stacks import activity as act
from pipetune.sampler.stacks.dump import StackDump
from pipetune.sampler.stacks.sampling import StackSampler
from tests.unit.diagnosis.scenes import ON_CORE, team
from tests.unit.watching.watch_scene import (
    PID,
    TRAINING,
    WAITING,
    Scene,
    make_scene,
)
from tests.watch_fakes import main_reading, task_reading


@pytest.fixture
def scene() -> Scene:
    return make_scene()


def test_a_stack_becomes_part_of_its_reading(scene: Scene) -> None:
    scene.ticks(0.5, **TRAINING)
    scene.stacks[PID].says = StackSample(pid=PID, activity=act.COPY, where="step (train.py:7)")

    ticks = scene.ticks(20, **TRAINING | {"busy_frac": 0.5})

    assert all(tick.reading.ranks[0].stack is not None for tick in ticks)
    (window,) = [tick.window for tick in ticks if tick.window is not None][:1]
    assert window.verdicts[0].cause == causes.H2D_COPY
    assert window.verdicts[0].stacks == 20


def test_no_stack_is_taken_for_a_reading_that_covers_no_time(scene: Scene) -> None:
    scene.ticks(0.5, interval_s=0.0, **TRAINING)

    assert scene.stacks[PID].asked == []
    assert scene.watcher.readings_of(PID) == []


def test_activities_of_workers_stacks_are_counted(scene: Scene) -> None:
    asleep = task_reading(state="S", wait=PIPE, cpu_frac=0.2, run_delay_frac=0.0)
    reading = {"busy_frac": 0.3, "workers": team(asleep)}
    scene.ticks(0.5, **reading)
    for _ in range(4):
        scene.stacks[PID].worker_activities[act.FETCH_DISK] = 1
        scene.ticks(0.5, **reading)
    assert scene.stacks[PID].worker_activities == {}

    (window,) = scene.windows(10, **reading)

    assert window.verdicts[0].cause == causes.DISK
    assert SignalValue(signal=Signal.WORKER_STACKS, value=4) in window.verdicts[0].signals


def test_each_rank_has_a_sampler_of_its_own(scene: Scene) -> None:
    scene.job.rank(PID + 1, 1, **TRAINING)
    scene.ticks(2, rank=0, **TRAINING)

    assert set(scene.stacks) == {PID, PID + 1}


def test_why_there_are_no_stacks_is_reported() -> None:
    def sampler(pid: int) -> StackSampler:
        denied = StackDump(threads={}, problem="stacks: the kernel forbids it", permanent=True)
        return StackSampler(pid, dump=lambda _: denied)

    (window,) = make_scene(stacks=sampler).windows(10.5, **WAITING | {"busy_frac": 0.3})
    (left_out,) = make_scene(stacks=None).windows(10.5, **WAITING | {"busy_frac": 0.3})

    assert window.verdicts[0].missing == ("stacks: the kernel forbids it",)
    assert left_out.verdicts[0].missing == ("stacks: disabled by --no-stacks",)


def test_a_main_thread_that_only_waits_is_judged_with_the_machine_of_its_own_time(scene: Scene) -> None:
    # Received before the rank began: packages that were downloaded, say.
    scene.job.machine = {"net_rx_bytes": 10**9}
    polling = task_reading(state="S", wait=PIPE, cpu_frac=0.3, run_delay_frac=0.0)
    scene.job.rank(PID + 1, 1, **TRAINING)
    scene.ticks(3, rank=0, busy_frac=0.0, workers=(), worker_kind=None, main=ON_CORE)
    scene.job.machine = {"net_rx_bytes": 10}

    (window,) = scene.windows(8, rank=0, busy_frac=0.3, workers=team(polling), has_sockets=True, main=main_reading())

    by_rank: dict[int | None, Verdict] = {verdict.rank: verdict for verdict in window.verdicts}
    assert causes.NETWORK not in {share.cause for share in by_rank[0].shares}
