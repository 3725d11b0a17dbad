"""One rank on its own. How ranks make windows is in ``test_watcher``, their stacks in ``test_watcher_stacks``."""

from __future__ import annotations

from typing import Any, cast

import pytest

from pipetune.records.observation import (
    EMULATED,
    LOADER_WAIT,
    NVML,
    GpuReading,
    MachineReading,
    RankReading,
    StackSample,
)
from pipetune.sampler.stacks import activity as act
from pipetune.sampler.stacks.sampling import StackSampler
from pipetune.watching.rank import FollowedRank, stored_reading
from tests.unit.samples import sample
from tests.unit.watching.watch_scene import TRAINING, WAITING, FakeStacks
from tests.watch_fakes import INTERVAL_S, PID, machine_reading, rank_reading

S = 10**9


@pytest.fixture
def rank() -> FollowedRank:
    return FollowedRank(cast(StackSampler, FakeStacks(PID)), 0)


def seen(seconds: float, **changes: Any) -> RankReading:
    return rank_reading(**TRAINING | {"t_ns": round(seconds * S)} | changes)


@pytest.mark.parametrize(
    ("changes", "begun"),
    [
        ({"source": NVML, "busy_frac": 0.02}, True),
        ({"source": NVML, "busy_frac": 0.01}, False),
        ({"source": NVML, "busy_frac": None}, False),
        ({"source": NVML, "busy_frac": 0.0, "youngest_worker_s": 120.0}, True),
        ({"source": NVML, "busy_frac": 0.0, "youngest_worker_s": 119.0}, False),
        ({"source": NVML, "busy_frac": 0.0, "t_ns": 120 * S}, True),
        ({"source": LOADER_WAIT, "busy_frac": None, "youngest_worker_s": 3.0}, True),
        ({"source": LOADER_WAIT, "busy_frac": None, "youngest_worker_s": 2.9}, False),
        ({"source": LOADER_WAIT, "busy_frac": None, "workers": ()}, False),
    ],
)
def test_what_shows_that_training_has_begun(rank: FollowedRank, changes: dict[str, Any], begun: bool) -> None:
    rank.take(seen(1, **{"youngest_worker_s": 1.0} | changes))

    assert rank.begun is begun
    assert len(rank.readings) == int(begun)


def test_a_stack_shows_that_training_has_begun(rank: FollowedRank) -> None:
    cast(FakeStacks, rank._stacks).says = StackSample(pid=PID, activity=act.MODEL, where="forward (net.py:1)")
    reading, _ = rank.take(seen(1, source=LOADER_WAIT, busy_frac=None, workers=()))

    assert rank.begun
    assert reading.stack is not None


def test_a_reading_that_covers_no_time_is_not_kept(rank: FollowedRank) -> None:
    reading, stalls = rank.take(seen(1, interval_s=0.0))

    assert (rank.begun, len(rank.readings), stalls) == (True, 0, [])
    assert reading.stack is None


def test_a_stall_is_returned_once_it_has_ended(rank: FollowedRank) -> None:
    ended = [rank.take(seen(1 + INTERVAL_S * n, **(WAITING if 2 <= n < 6 else {})))[1] for n in range(8)]

    (stall,) = [stall for stalls in ended for stall in stalls]
    assert stall.t_end_ns - stall.t_start_ns == 2 * S
    assert rank.stalled_since_ns is None


def test_a_stall_that_goes_on_can_be_ended(rank: FollowedRank) -> None:
    for n in range(4):
        rank.take(seen(1 + INTERVAL_S * n, **(WAITING if n else {})))
    assert rank.stalled_since_ns == S

    (stall,) = rank.end_stall(3 * S)

    assert (stall.t_start_ns, stall.t_end_ns) == (S, 3 * S)
    assert rank.end_stall(4 * S) == []


def test_a_stretch_without_readings_has_no_verdict(rank: FollowedRank) -> None:
    rank.take(seen(1))

    assert rank.judge(S, [machine_reading(t_ns=S)]) is None
    verdict = rank.judge(0, [machine_reading(t_ns=S)])
    assert verdict is not None
    assert verdict.looks == 1


def test_a_reading_is_stored_in_the_form_of_a_sweeps() -> None:
    machine, rank = sample(MachineReading), sample(RankReading, gpu=GpuReading(util_pct=5.0))

    reading = stored_reading(machine, rank)

    assert (reading.t_ns, reading.interval_s) == (rank.t_ns, rank.interval_s)
    assert reading.gpu == GpuReading(util_pct=5.0)
    assert reading.tree == rank.tree
    assert (reading.cpu_busy_pct, reading.cpu_iowait_pct) == (machine.cpu_busy_pct, machine.cpu_iowait_pct)
    assert (reading.psi_io_some_pct, reading.tick_cost_s) == (machine.psi_io_some_pct, machine.cost_s)


@pytest.mark.parametrize(
    ("rank", "gpu"),
    [
        (rank_reading(source=EMULATED, busy_frac=0.25, gpu=None), GpuReading(util_pct=25.0)),
        (rank_reading(source=EMULATED, busy_frac=None, gpu=None), None),
        (rank_reading(source=LOADER_WAIT, busy_frac=None, gpu=None), None),
    ],
)
def test_an_emulated_accelerators_busy_share_is_stored_as_utilisation(
    rank: RankReading, gpu: GpuReading | None
) -> None:
    assert stored_reading(machine_reading(), rank).gpu == gpu
