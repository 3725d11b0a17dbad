from __future__ import annotations

from pathlib import Path

import pytest

from pipetune.sampler.job.find_jobs import list_jobs
from tests.unit.sampler.job.fake_job import FakeJob


@pytest.fixture
def fake(tmp_path: Path) -> FakeJob:
    return FakeJob(tmp_path)


def runs(fake: FakeJob, pid: int, program: str) -> None:
    (Path(fake.path) / str(pid) / "exe").symlink_to(program)


def test_the_parent_of_loader_workers_is_a_job(fake: FakeJob) -> None:
    fake.job(10, 1, comm="python")
    for pid in (11, 12):
        fake.job(pid, 10, comm="pt_data_worker")
        runs(fake, pid, "/usr/bin/python3")
    runs(fake, 10, "/usr/bin/python3")
    (found,) = list_jobs((), fake.path)
    assert (found.pid, found.why) == (10, "has torch loader workers")


def test_whoever_adopted_an_orphaned_worker_is_none(fake: FakeJob) -> None:
    # Nor does it stand for the jobs below it.
    fake.job(1, 0, comm="init")
    runs(fake, 1, "/sbin/init")
    fake.job(20, 1, comm="pt_data_worker")
    runs(fake, 20, "/usr/bin/python3")
    for trainer, worker in ((10, 11), (12, 13)):
        fake.job(trainer, 1, comm="python")
        fake.job(worker, trainer, comm="pt_data_worker")
        for pid in (trainer, worker):
            runs(fake, pid, "/usr/bin/python3")
    assert [guess.pid for guess in list_jobs((), fake.path)] == [10, 12]


def test_in_a_container_the_first_process_may_be_the_job(fake: FakeJob) -> None:
    fake.job(1, 0, comm="python")
    fake.job(11, 1, comm="pt_data_worker")
    for pid in (1, 11):
        runs(fake, pid, "/usr/bin/python3")
    assert [guess.pid for guess in list_jobs((), fake.path)] == [1]
