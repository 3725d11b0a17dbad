from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import cast

import pytest

from pipetune.machine.nvml.gpu import Gpu
from pipetune.records.observation import LOADER_WAIT, NVML, GpuReading, JobReading
from pipetune.sampler.job.job import GpuFinder, JobReader
from pipetune.sampler.job.roles import ProcessInfo
from tests.fakes import Clock
from tests.unit.sampler.job.fake_job import TRAIN, WORKER, FakeJob, real_job
from tests.unit.sampler.job.test_accelerator import FakeGpu
from tests.unit.sampler.job.test_network import DEV

BASH = ("/bin/bash", "run.sh")


@pytest.fixture
def fake(tmp_path: Path) -> FakeJob:
    made = FakeJob(tmp_path)
    made.write("uptime", "500.00 900.00\n")
    made.machine("cpu 100 0 0 100 0 0 0 0 0 0")
    for name in ("cpu", "io", "memory"):
        made.pressure(name, 0)
    return made


@pytest.fixture
def clock() -> Clock:
    return Clock()


def _no_gpu(info: ProcessInfo) -> Gpu | None:
    return None


def _job(fake: FakeJob, clock: Clock, root: int = 10, gpu_of: GpuFinder = _no_gpu) -> JobReader:
    return JobReader(root, gpu_of, proc=fake.path, clock=clock)


def _after(clock: Clock, job: JobReader, seconds: float) -> JobReading:
    clock.sleep(seconds)
    return job.read()


def _pids(reading: JobReading) -> list[int]:
    return [rank.pid for rank in reading.ranks]


def test_ranks_and_machine_are_read_together(fake: FakeJob, clock: Clock) -> None:
    fake.job(10)
    fake.write("10/net/dev", DEV.format(eth0=1000))
    job = _job(fake, clock)
    first = job.read()
    fake.machine("cpu 175 0 0 120 5 0 0 0 0 0")
    fake.pressure("io", 500_000)
    fake.write("10/net/dev", DEV.format(eth0=3000))

    second = _after(clock, job, 1)

    assert _pids(second) == [10]
    assert (first.machine.interval_s, first.machine.cpu_busy_pct, first.machine.net_rx_bytes) == (0, None, None)
    machine = second.machine
    assert (machine.t_ns, machine.interval_s) == (second.ranks[0].t_ns, 1.0)
    assert (machine.cpu_busy_pct, machine.cpu_idle_pct, machine.cpu_iowait_pct) == (75, 20, 5)
    assert (machine.psi_io_some_pct, machine.psi_cpu_some_pct, machine.psi_scope) == (50, 0, "machine")
    assert machine.net_rx_bytes == 2000
    assert machine.cost_s >= 0
    assert machine.cores >= 1
    job.close()
    job.close()


def test_without_pressure_there_is_no_scope(fake: FakeJob, clock: Clock) -> None:
    fake.job(10)
    for name in ("cpu", "io", "memory"):
        (fake.folder / "pressure" / name).unlink()
    job = _job(fake, clock)
    job.read()

    machine = _after(clock, job, 1).machine

    assert (machine.psi_io_some_pct, machine.psi_scope) == (None, None)


def test_a_job_grows_one_process_after_the_other(fake: FakeJob, clock: Clock) -> None:
    fake.job(10, command=BASH)
    job = _job(fake, clock)

    first = _pids(job.read())
    fake.job(11, 10)
    soon, later = _pids(_after(clock, job, 1)), _pids(_after(clock, job, 2))

    assert (first, soon, later) == ([10], [10], [11])


def test_a_rank_that_ends_is_dropped_and_the_others_go_on(fake: FakeJob, clock: Clock) -> None:
    fake.job(10, command=BASH)
    for rank in (0, 1):
        fake.job(20 + rank, 10, environ={"RANK": rank})
    job = _job(fake, clock)
    both = _pids(job.read())
    fake.end(20)

    assert (both, _pids(_after(clock, job, 0.5)), _pids(_after(clock, job, 0.5))) == ([20, 21], [21], [21])
    assert not job.ended


def test_ranks_without_a_number_stay_while_they_have_no_workers(fake: FakeJob, clock: Clock) -> None:
    fake.job(10)
    for pid in (20, 30):
        fake.job(pid, 10)
        fake.job(pid + 1, pid, comm=WORKER)
    job = _job(fake, clock)
    assert _pids(job.read()) == [20, 30]
    fake.end(21)  # between two epochs
    assert _pids(_after(clock, job, 5)) == [20, 30]
    fake.end(31)
    assert _pids(_after(clock, job, 35)) == [20, 30]
    fake.end(20)
    fake.job(40, 10)
    assert _pids(job.read()) == [30]
    fake.job(41, 40, comm=WORKER)
    assert _pids(_after(clock, job, 4)) == [30, 40]  # not after half a minute


def test_a_rank_that_is_started_anew_is_another_one(fake: FakeJob, clock: Clock) -> None:
    fake.job(10, command=BASH)
    fake.job(20, 10, environ={"RANK": 0})
    job = _job(fake, clock)
    job.read()
    fake.job(20, 10, environ={"RANK": 0}, start=999)

    assert _pids(_after(clock, job, 0.5)) == []
    reading = _after(clock, job, 0.5)
    assert _pids(reading) == [20]
    assert reading.ranks[0].interval_s == 0
    assert [key[1] for key in job.ranks] == [999]


def test_ranks_outlive_their_launcher(fake: FakeJob, clock: Clock) -> None:
    fake.job(10, command=BASH)
    fake.job(20, 10, environ={"RANK": 0})
    job = _job(fake, clock)
    job.read()
    fake.end(10)

    seen = [_pids(_after(clock, job, 3)) for _ in range(3)]

    assert seen == [[20], [20], [20]]
    assert not job.ended
    fake.end(20)
    assert _pids(_after(clock, job, 0.5)) == []
    assert job.ended


def test_ranks_outlive_an_unreaped_launcher(fake: FakeJob, clock: Clock) -> None:
    fake.job(10, command=BASH)
    fake.job(20, 10, environ={"RANK": 0})
    job = _job(fake, clock)
    job.read()
    fake.job(10, command=BASH, state="Z")
    fake.write("10/task/10/children", "")

    assert _pids(_after(clock, job, 3)) == [20]


@pytest.mark.parametrize("how", ["gone", "zombie", "number used again"])
def test_a_job_has_ended_with_its_process(fake: FakeJob, clock: Clock, how: str) -> None:
    fake.job(10)
    job = _job(fake, clock)
    job.read()
    assert not job.ended
    if how == "gone":
        fake.end(10)
    elif how == "zombie":
        fake.job(10, state="Z")
    else:
        fake.job(10, start=999)

    assert _pids(_after(clock, job, 0.5)) == []
    assert job.ended


def test_a_process_that_is_gone_before_the_first_reading_has_ended(fake: FakeJob, clock: Clock) -> None:
    job = _job(fake, clock)

    assert job.ended
    assert _pids(job.read()) == []


def test_each_rank_has_its_gpu(fake: FakeJob, clock: Clock) -> None:
    fake.job(10, command=BASH)
    for rank in (0, 1):
        fake.job(20 + rank, 10, environ={"RANK": rank})
    gpus = [cast(Gpu, FakeGpu(GpuReading(util_pct=10.0 * rank))) for rank in (0, 1)]

    def gpu_of(info: ProcessInfo) -> Gpu | None:
        return gpus[info.rank or 0]

    job = _job(fake, clock, gpu_of=gpu_of)
    job.read()
    reading = _after(clock, job, 10)

    assert [(rank.source, rank.busy_frac) for rank in reading.ranks] == [(NVML, 0.0), (NVML, pytest.approx(0.1))]


def test_another_gpu_is_read_where_the_first_was_a_guess(fake: FakeJob, clock: Clock) -> None:
    fake.job(10)
    gpus = [cast(Gpu, FakeGpu(GpuReading(util_pct=percent))) for percent in (0.0, 90.0)]
    job = _job(fake, clock, gpu_of=lambda info: gpus[0])
    first = job.read().ranks[0].busy_frac
    del gpus[0]

    assert (first, _after(clock, job, 3).ranks[0].busy_frac) == (0.0, pytest.approx(0.9))


def test_a_gpu_that_is_opened_later_is_found_later(fake: FakeJob, clock: Clock) -> None:
    fake.job(10)
    gpus: list[Gpu] = []
    job = _job(fake, clock, gpu_of=lambda info: gpus[0] if gpus else None)
    before = job.read().ranks[0].source
    gpus.append(cast(Gpu, FakeGpu(GpuReading(util_pct=50.0))))

    soon, later = _after(clock, job, 1).ranks[0].source, _after(clock, job, 2).ranks[0].source

    assert (before, soon, later) == (LOADER_WAIT, LOADER_WAIT, NVML)


def test_a_shell_that_becomes_the_training_process_is_known_as_that(fake: FakeJob, clock: Clock) -> None:
    # ``exec python train.py``, or a wrapper of pyenv: number and start stay the same. Its forks are recognised by
    # running what it runs.
    fake.job(10, command=BASH, comm="bash")
    job = _job(fake, clock)
    job.read()
    fake.job(10)
    fake.job(11, 10)
    reading = _after(clock, job, 3)

    assert [rank.info.command for rank in job.ranks.values()] == [TRAIN]
    assert [task.pid for task in reading.ranks[0].workers] == [11]


def test_cores_are_those_of_the_job_s_affinity(fake: FakeJob, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    affinity = {10: {0, 2, 3}}
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: affinity[pid])
    fake.job(10)
    assert _job(fake, clock).read().machine.cores == 3.0


def test_cores_follow_an_affinity_that_is_set_later(
    fake: FakeJob, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    affinity = {10: {0, 1, 2, 3}, 11: {0, 1, 2, 3}, 12: {0, 1, 2, 3}}
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: affinity[pid])
    fake.job(10, command=BASH, comm="bash")
    for rank in (11, 12):
        fake.job(rank, 10, environ={"RANK": rank - 11})
    fake.machine(*LOAD_BEFORE)
    job = _job(fake, clock)
    assert job.read().machine.cores == 4.0
    affinity.update({11: {1}, 12: {2}})  # each rank is bound to a core of its own
    fake.machine(*LOAD_BEFORE)
    assert _after(clock, job, 3).machine.cores == 2.0
    fake.machine(*LOAD_AFTER)
    machine = _after(clock, job, 1).machine
    job.close()

    assert machine.cpu_busy_pct == pytest.approx(50.0)  # of the cores 1 and 2: one is busy, one is idle


#: The second and third of four cores are what is looked at: 100 ticks of work on one, 100 of rest on the other.
LOAD_BEFORE = ("cpu 0 0 0 0 0 0 0 0 0 0", *(f"cpu{core} 0 0 0 0 0 0 0 0 0 0" for core in range(4)))
LOAD_AFTER = (
    "cpu 300 0 0 100 0 0 0 0 0 0", "cpu0 100 0 0 0 0 0 0 0 0 0", "cpu1 100 0 0 0 0 0 0 0 0 0",
    "cpu2 0 0 0 100 0 0 0 0 0 0", "cpu3 100 0 0 0 0 0 0 0 0 0",
)  # fmt: skip


def test_unknown_affinity_is_all_cores(fake: FakeJob, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int) -> set[int]:
        raise ProcessLookupError

    monkeypatch.setattr(os, "sched_getaffinity", refuse)
    fake.job(10)
    assert _job(fake, clock).read().machine.cores == os.cpu_count()


def test_a_real_job_is_followed_to_its_end(tmp_path: Path) -> None:
    clock = Clock()
    with contextlib.ExitStack() as held:
        pid = held.enter_context(real_job(tmp_path, "fork", 2))
        job = JobReader(pid, _no_gpu, clock=clock)
        job.read()
        reading = _after(clock, job, 3)
        ended = job.ended
        held.close()
        after = _after(clock, job, 1)

    assert [task.name for task in reading.ranks[0].workers] == [WORKER, WORKER]
    assert reading.machine.net_rx_bytes is not None
    assert not ended
    assert after.ranks == ()
    assert job.ended
    job.close()
