from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from pipetune.machine.proc import TICK_S
from pipetune.records.observation import LOADER_WAIT, LOCK, OTHER, PIPE, SLEEP, RankReading
from pipetune.sampler.job.rank import RankReader
from pipetune.sampler.job.roles import read_info
from tests.fakes import Clock
from tests.unit.sampler.job.fake_job import (
    WORKER,
    FakeJob,
    real_job,
    until,
)
from tests.unit.sampler.job.test_network import TCP

S = 10**9
TICKS_PER_S = round(1 / TICK_S)


@pytest.fixture
def fake(tmp_path: Path) -> FakeJob:
    made = FakeJob(tmp_path)
    made.write("uptime", "500.00 900.00\n")
    return made


def _reader(fake: FakeJob, pid: int = 10, *, boot_s: float = 500.0) -> RankReader:
    info = read_info(pid, fake.path)
    assert info is not None
    return RankReader(info, None, proc=fake.path, clock=Clock(), boot_s=lambda: boot_s)


def _read(reader: RankReader, seconds: float) -> RankReading:
    reading = reader.read(round(seconds * S))
    assert reading is not None
    return reading


def _workers(reading: RankReading) -> list[int]:
    return [task.pid for task in reading.workers]


def test_a_reading_has_the_main_thread_and_the_whole_process(fake: FakeJob) -> None:
    fake.job(10, environ={"RANK": 3})
    reader = _reader(fake)
    _read(reader, 1)
    fake.job(10, environ={"RANK": 3}, ticks=2 * TICKS_PER_S, wchan="ep_poll")

    reading = _read(reader, 2)

    assert (reading.pid, reading.rank, reading.interval_s) == (10, 3, 1.0)
    assert reading.main.wait == PIPE
    assert reading.process_cpu_frac == pytest.approx(2.0)
    assert reading.source == LOADER_WAIT
    assert (reading.workers, reading.worker_kind, reading.youngest_worker_s, reading.pin) == ((), None, None, None)
    reader.close()
    reader.close()


def test_the_first_reading_covers_no_time(fake: FakeJob) -> None:
    fake.job(10)

    assert _read(_reader(fake), 1).interval_s == 0


def test_a_rank_that_has_ended_is_none(fake: FakeJob) -> None:
    fake.job(10)
    reader = _reader(fake)
    _read(reader, 1)
    fake.end(10)

    assert reader.read(2 * S) is None
    assert reader.read(3 * S) is None


def test_a_reused_pid_is_another_process(fake: FakeJob) -> None:
    fake.job(10)
    info = read_info(10, fake.path)
    assert info is not None
    fake.job(10, start=999)

    with pytest.raises(ValueError, match="another one now"):
        RankReader(info, None, proc=fake.path)


def test_the_youngest_worker_has_the_age_that_its_start_gives(fake: FakeJob) -> None:
    fake.job(10)
    fake.job(11, 10, comm=WORKER, start=100 * TICKS_PER_S)
    fake.job(12, 10, comm=WORKER, start=498 * TICKS_PER_S)

    assert _read(_reader(fake), 1).youngest_worker_s == pytest.approx(2.0)


def test_a_containers_own_uptime_makes_no_worker_young(fake: FakeJob) -> None:
    # The container has been up for 20 s, the machine for days; the workers are 10 s old.
    fake.write("uptime", "20.00 900.00\n")
    fake.job(10, start=900_000)
    fake.job(11, 10, comm=WORKER, start=901_000)

    assert _read(_reader(fake, boot_s=9020.0), 1).youngest_worker_s == pytest.approx(10.0)


def test_a_start_that_lies_ahead_is_no_age(fake: FakeJob) -> None:
    fake.job(10, start=900_000)
    fake.job(11, 10, comm=WORKER, start=901_000)

    assert _read(_reader(fake), 1).youngest_worker_s is None


def test_loader_threads_stand_in_for_processes(fake: FakeJob) -> None:
    fake.job(10)
    fake.named_thread(10, 14, "pt_thread_data_0", wchan="futex_do_wait")
    fake.named_thread(10, 15, "[DALI][WT] 1")
    fake.named_thread(10, 16, "python")
    reader = _reader(fake)
    _read(reader, 1)
    fake.named_thread(10, 15, "[DALI][WT] 1", state="R", ticks=TICKS_PER_S)

    reading = _read(reader, 2)

    assert reading.worker_kind == "thread"
    assert {task.pid: task.cpu_frac for task in reading.workers} == pytest.approx({14: 0.0, 15: 1.0})
    assert reading.youngest_worker_s is None


def test_processes_are_preferred_to_threads(fake: FakeJob) -> None:
    fake.job(10)
    fake.job(11, 10, comm=WORKER)
    fake.named_thread(10, 14, "[DALI][WT] 1")

    reading = _read(_reader(fake), 1)

    assert (_workers(reading), reading.worker_kind) == ([11], "process")


def test_the_pin_thread_is_read(fake: FakeJob) -> None:
    fake.job(10)
    fake.named_thread(10, 14, "pt_data_pin", wchan="futex_do_wait")
    reader = _reader(fake)

    reading = _read(reader, 1)

    assert reading.pin is not None
    assert (reading.pin.pid, reading.pin.wait) == (14, LOCK)


def test_the_pin_thread_of_the_next_epoch_takes_the_place_of_the_last(fake: FakeJob) -> None:
    fake.job(10)
    fake.named_thread(10, 14, "pt_data_pin")
    reader = _reader(fake)
    _read(reader, 1)
    fake.end_thread(10, 14)
    gone = _read(reader, 2)
    fake.named_thread(10, 15, "pt_data_pin")
    anew = _read(reader, 4)
    fake.end_thread(10, 15)
    without = _read(reader, 7)

    assert gone.pin is None
    assert anew.pin is not None
    assert anew.pin.pid == 15
    assert without.pin is None


def test_connections_are_read_only_where_they_matter(fake: FakeJob) -> None:
    fake.job(10)
    fake.job(11, 10, comm=WORKER, state="R")
    fake.write("11/net/tcp", TCP)
    fake.opens(11, 4, "socket:[501]")
    reader = _reader(fake)

    running = _read(reader, 1)
    fake.job(11, 10, comm=WORKER, wchan="ep_poll")
    polling = _read(reader, 2)
    (fake.folder / "11/fd/4").unlink()
    soon, later = _read(reader, 3), _read(reader, 13)

    assert (running.has_sockets, polling.has_sockets) == (None, True)
    assert (soon.has_sockets, later.has_sockets) == (True, False)


def test_packed_files_are_looked_for_where_storage_is_waited_for_and_remembered(fake: FakeJob) -> None:
    fake.job(10)
    fake.job(11, 10, comm=WORKER, state="R")
    fake.opens(11, 4, "/data/train-000003.tar")
    reader = _reader(fake)

    running = _read(reader, 1)
    fake.job(11, 10, comm=WORKER, wchan="folio_wait_bit_common", state="D")
    waiting = _read(reader, 2)
    (fake.folder / "11/fd/4").unlink()
    later = _read(reader, 13)

    assert [one.packed for one in (running, waiting, later)] == [None, "WebDataset shards", "WebDataset shards"]


def test_without_workers_the_processs_own_connections_count(fake: FakeJob) -> None:
    fake.job(10, wchan="ep_poll")
    fake.write("10/net/tcp", TCP)
    fake.opens(10, 4, "socket:[501]")

    assert _read(_reader(fake), 1).has_sockets is True


def test_unreadable_connections_are_not_measured(fake: FakeJob) -> None:
    fake.job(10)
    fake.job(11, 10, comm=WORKER, wchan="ep_poll")

    assert _read(_reader(fake), 1).has_sockets is None  # the fake has no folder of open files


def test_the_tree_sums_living_and_ended_workers(fake: FakeJob) -> None:
    fake.job(10, ticks=100)
    fake.job(11, 10, comm=WORKER, ticks=50, state="D")
    reader = _reader(fake)
    first = _read(reader, 1).tree
    fake.end(11)
    second = _read(reader, 2).tree

    assert first is not None
    assert second is not None
    assert (first.processes, first.in_disk_sleep) == (2, 1)
    assert first.cpu_s == pytest.approx(150 * TICK_S)
    assert (second.processes, second.in_disk_sleep) == (1, 0)
    assert second.cpu_s == pytest.approx(150 * TICK_S)


@pytest.mark.parametrize(
    ("way", "kind"),
    [
        ("fork", "process"),
        ("spawn", "process"),
        ("forkserver", "process"),
        ("thread", "thread"),
    ],
)
def test_the_workers_of_a_real_job_are_found(tmp_path: Path, way: str, kind: str) -> None:
    with real_job(tmp_path, way, 3) as pid:
        info = read_info(pid)
        assert info is not None
        reader = RankReader(info, None)
        times = iter(range(S, 10**6 * S, 3 * S))

        def read() -> RankReading:
            return _read(reader, next(times) / S)

        seen = until(read, lambda it: len(it.workers) >= 3 and all(task.state == "S" for task in it.workers), 3.0)
        reader.close()

    assert seen.worker_kind == kind
    assert {task.name for task in seen.workers} == {WORKER if kind == "process" else "pt_thread_data_"}
    assert {task.wait for task in seen.workers} <= {SLEEP, OTHER}
    assert len(seen.workers) == 3
    assert seen.pin is not None
    assert seen.main.pid == pid
    assert seen.has_sockets in (None, False)
    if kind == "process":
        assert seen.youngest_worker_s is not None
        assert seen.youngest_worker_s < 3600


def test_workers_of_a_real_rank_inherit_its_environment(tmp_path: Path) -> None:
    environ: dict[str, Any] = {**os.environ, "RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8"}
    with real_job(tmp_path, "spawn", 2, environ=environ) as pid:
        info = read_info(pid)
        assert info is not None
        reader = RankReader(info, None)
        reading = _read(reader, 1)
        reader.close()

    assert (reading.rank, info.local_rank) == (5, 1)
    assert len(reading.workers) == 2


def test_a_real_job_that_ends_is_none(tmp_path: Path) -> None:
    with real_job(tmp_path, "fork", 1) as pid:
        info = read_info(pid)
        assert info is not None
        reader = RankReader(info, None)
        assert reader.read(S) is not None

    assert reader.read(2 * S) is None
    reader.close()
