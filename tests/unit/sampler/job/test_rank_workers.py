from __future__ import annotations

import pytest

from pipetune.machine.proc import TICK_S
from pipetune.records.observation import DISK, NETWORK
from pipetune.sampler.job.rank import RankReader
from pipetune.sampler.job.roles import read_info
from tests.fakes import Clock
from tests.unit.sampler.job.fake_job import (
    COMPILE_WORKER,
    FORK_SERVER,
    SPAWNED,
    TRACKER,
    TRAIN,
    WORKER,
    FakeJob,
)
from tests.unit.sampler.job.test_rank import _read, _reader, _workers, fake

__all__ = ["fake"]

TICKS_PER_S = round(1 / TICK_S)


def test_worker_processes_are_read_before_one_by_one(fake: FakeJob) -> None:
    fake.job(10)
    fake.job(11, 10, comm=WORKER, state="D", wchan="folio_wait_bit_common")
    fake.job(12, 10, comm=WORKER, wchan="wait_woken")
    reader = _reader(fake)
    _read(reader, 1)
    fake.job(11, 10, comm=WORKER, state="D", wchan="folio_wait_bit_common", ticks=TICKS_PER_S // 2, io=(9, 0, 4096))

    reading = _read(reader, 2)

    assert reading.worker_kind == "process"
    assert [(task.pid, task.wait) for task in reading.workers] == [(11, DISK), (12, NETWORK)]
    assert reading.workers[0].cpu_frac == pytest.approx(0.5)
    assert reading.workers[0].read_bytes == 4096


@pytest.mark.parametrize("command", [TRACKER, COMPILE_WORKER, FORK_SERVER, ("/usr/bin/git", "status")])
def test_servants_and_other_programs_are_no_workers(fake: FakeJob, command: tuple[str, ...]) -> None:
    fake.job(10)
    fake.job(11, 10, command=command)

    assert _workers(_read(_reader(fake), 1)) == []


@pytest.mark.parametrize("command", [TRAIN, SPAWNED])
def test_workers_without_a_name_are_recognised_by_their_program(fake: FakeJob, command: tuple[str, ...]) -> None:
    fake.job(10)
    fake.job(11, 10, command=command)

    assert _workers(_read(_reader(fake), 1)) == [11]


def test_where_workers_have_names_other_forks_are_none(fake: FakeJob) -> None:
    fake.job(10)
    fake.job(11, 10, comm=WORKER)
    fake.job(12, 10)  # a multiprocessing.Manager, or a pool of the user's
    reader = _reader(fake)
    _read(reader, 1)

    assert _workers(_read(reader, 3)) == [11]
    fake.job(13, 10)
    fake.job(14, 10, comm=WORKER)
    assert _workers(_read(reader, 5)) == [11, 14]


def test_a_spawned_worker_is_being_started_until_it_has_its_name(fake: FakeJob) -> None:
    fake.job(10)
    fake.job(11, 10, comm=WORKER, command=SPAWNED)
    fake.job(12, 10, command=SPAWNED)
    reader = _reader(fake)
    _read(reader, 1)
    before = _read(reader, 3).workers
    fake.job(12, 10, command=SPAWNED, comm=WORKER)
    after = _read(reader, 3.5).workers

    assert [task.starting for task in before] == [False, True]
    assert [(task.starting, task.name) for task in after] == [(False, WORKER)] * 2


def test_workers_that_never_have_a_name_are_not_being_started(fake: FakeJob) -> None:
    # Torch before 2.6, and other libraries.
    fake.job(10)
    for pid in (11, 12):
        fake.job(pid, 10, command=SPAWNED)
    reader = _reader(fake)
    _read(reader, 1)

    assert [task.starting for task in _read(reader, 3).workers] == [False, False]


def test_workers_of_a_fork_server_are_found(fake: FakeJob) -> None:
    fake.job(10)
    fake.job(12, 10, command=FORK_SERVER)
    fake.job(13, 12, command=FORK_SERVER, comm=WORKER)

    assert _workers(_read(_reader(fake), 1)) == [13]


def test_workers_of_another_rank_are_left_out(fake: FakeJob) -> None:
    fake.job(10, environ={"RANK": 0})
    fake.job(11, 10, comm=WORKER, environ={"RANK": 0})
    fake.job(20, 10, environ={"RANK": 1})
    fake.job(21, 20, comm=WORKER, environ={"RANK": 1})

    assert _workers(_read(_reader(fake), 1)) == [11]


def test_below_other_ranks_nothing_is_this_ones_though_no_rank_is_in_their_environment(fake: FakeJob) -> None:
    fake.job(10)
    fake.job(11, 10, comm=WORKER)
    fake.job(20, 10, environ={"LOCAL_RANK": 1})  # as Lightning starts it
    fake.job(21, 20, comm=WORKER, environ={"LOCAL_RANK": 1})
    others: list[int] = []
    info = read_info(10, fake.path)
    assert info is not None
    reader = RankReader(info, None, others=lambda: others, proc=fake.path, clock=Clock(), boot_s=lambda: 500.0)
    assert 21 in _workers(_read(reader, 1))
    others.append(20)
    _read(reader, 10)
    assert _workers(_read(reader, 11)) == [11]


def test_spawned_workers_of_a_program_that_sets_its_own_rank_are_found(fake: FakeJob) -> None:
    # os.environ["RANK"] = "0" in the script is not in its own /proc/PID/environ, but in that of what it spawns.
    fake.job(10)
    fake.job(11, 10, command=SPAWNED, comm=WORKER, environ={"RANK": 0})

    assert _workers(_read(_reader(fake), 1)) == [11]


def test_new_workers_are_found_within_two_seconds(fake: FakeJob) -> None:
    fake.job(10)
    reader = _reader(fake)
    _read(reader, 1)
    fake.job(11, 10, comm=WORKER)

    assert [_workers(_read(reader, t)) for t in (1.5, 2.9, 3.0)] == [[], [], [11]]


def test_a_worker_that_names_itself_late_is_found(fake: FakeJob) -> None:
    fake.job(10)
    fake.job(11, 10, command=("/bin/other",))
    reader = _reader(fake)

    before = _workers(_read(reader, 1))
    fake.job(11, 10, command=("/bin/other",), comm=WORKER)
    after = _workers(_read(reader, 3))

    assert (before, after) == ([], [11])


def test_the_end_of_a_worker_starts_a_search_for_others(fake: FakeJob) -> None:
    fake.job(10)
    fake.job(11, 10, comm=WORKER)
    fake.job(12, 10, comm=WORKER)
    reader = _reader(fake)
    _read(reader, 1)
    fake.end(11)
    fake.job(13, 10, comm=WORKER, start=300)

    assert _workers(_read(reader, 1.5)) == [12]
    assert _workers(_read(reader, 2)) == [12, 13]


def test_workers_that_are_started_anew_are_counted(fake: FakeJob) -> None:
    fake.job(10)
    fake.job(11, 10, comm=WORKER, ticks=50)
    reader = _reader(fake)
    for epoch in range(3):
        _read(reader, 1 + 4 * epoch)
        fake.end(11 + epoch)
        _read(reader, 2 + 4 * epoch)
        fake.job(12 + epoch, 10, comm=WORKER, ticks=50, start=300 + epoch)
    _read(reader, 12)
    _read(reader, 15)

    assert reader.restarts == 3


def test_workers_that_come_one_after_the_other_are_no_restart(fake: FakeJob) -> None:
    fake.job(10)
    reader = _reader(fake)
    for number in range(3):
        fake.job(11 + number, 10, comm=WORKER, ticks=50)
        _read(reader, 1 + 3 * number)

    assert reader.restarts == 0


def test_a_number_that_is_used_again_is_another_worker(fake: FakeJob) -> None:
    fake.job(10)
    fake.job(11, 10, comm=WORKER, start=100)
    reader = _reader(fake)
    _read(reader, 1)
    fake.job(11, 10, command=("/usr/bin/git",), comm="git", start=400)

    assert _workers(_read(reader, 2)) == []
    assert _workers(_read(reader, 3)) == []


@pytest.mark.thorough
@pytest.mark.parametrize("threads", [False, True])
def test_of_many_workers_half_are_read_in_turn(fake: FakeJob, threads: bool) -> None:
    fake.job(10)
    numbers = list(range(11, 23))
    read_before: set[int] = set()
    for second in range(1, 22):
        for number in numbers:
            # Half a core each, and asleep in another place at every reading.
            wchan = "folio_wait_bit_common" if second % 2 else "wait_woken"
            ticks = second * TICKS_PER_S // 2
            if threads:
                fake.named_thread(10, number, "pt_thread_data_", ticks=ticks, wchan=wchan)
            else:
                fake.job(number, 10, comm=WORKER, ticks=ticks, wchan=wchan, io=(second * 1000, 0, second * 4096))
        if second == 1:
            reader = _reader(fake)
        reading = _read(reader, second)
        if second < 4:
            before = reading
            continue

        assert sorted(_workers(reading)) == numbers
        assert [task.cpu_frac for task in reading.workers] == pytest.approx([0.5] * 12)
        new = {task.pid for task, old in zip(reading.workers, before.workers, strict=True) if task is not old}
        assert len(new) == 6
        assert not new & read_before
        read_before = new
        if not threads and second > 10:
            # Bytes are reported for the time of one reading, though they were read over several.
            assert [task.read_bytes for task in reading.workers] == [4096] * 12
        before = reading
