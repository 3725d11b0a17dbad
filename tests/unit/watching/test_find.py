from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pipetune.errors import UsageError
from pipetune.processes.user_job import JobProcess
from pipetune.sampler.job.find_jobs import JobGuess
from pipetune.watching import find
from pipetune.watching.find import find_target, started_target


class FakeGpus:
    """GPUs 0 and 1, or a reason why none can be read."""

    problem: str | None = None
    indices: tuple[int, ...] = (0, 1)

    def __init__(self, **_: Any) -> None:
        self.uses = tuple(SimpleNamespace(index=index) for index in self.indices)


def guess(pid: int, *gpus: int) -> JobGuess:
    return JobGuess(pid=pid, title=f"train{pid}.py", why="has torch loader workers", gpus=gpus)


@pytest.fixture
def job() -> Iterator[int]:
    """A process that sleeps."""
    process = subprocess.Popen([sys.executable, "-c", "import time; print(flush=True); time.sleep(60)"], stdout=-1)
    assert process.stdout is not None
    process.stdout.readline()
    yield process.pid
    process.kill()
    process.communicate()


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[JobGuess]:
    """The jobs that run, to be filled by the test."""
    running: list[JobGuess] = []
    monkeypatch.setattr(find, "list_jobs", lambda uses: list(running))
    monkeypatch.setattr(find, "RankGpus", FakeGpus)
    return running


def test_a_named_process_is_the_target(job: int) -> None:
    target = find_target(job, None)

    assert (target.info.pid, target.found, target.remark) == (job, "named with --pid", None)


def test_a_thread_leads_to_its_process(job: int, monkeypatch: pytest.MonkeyPatch) -> None:
    info = find.named_process(job)[0]
    monkeypatch.setattr(find, "named_process", lambda pid: (info, "7 is a thread of it"))

    target = find_target(7, None)

    assert (target.info.pid, target.found, target.remark) == (job, "7 is a thread of it", "7 is a thread of it")


def test_no_such_process_is_refused() -> None:
    with pytest.raises(UsageError, match="there is no process"):
        find_target(2**22, None)


def test_the_only_job_is_found(jobs: list[JobGuess], job: int) -> None:
    jobs.append(guess(job))

    target = find_target(None, None)

    assert (target.info.pid, target.found) == (job, "found: it has torch loader workers")


def test_of_several_jobs_none_is_chosen_and_all_are_named(jobs: list[JobGuess]) -> None:
    jobs += [guess(11), guess(12)]

    with pytest.raises(UsageError) as refused:
        find_target(None, None)

    assert refused.value.message.startswith("2 jobs could be meant: 11  train11.py")
    assert "12  train12.py" in refused.value.message


def test_a_caller_may_choose(jobs: list[JobGuess], job: int) -> None:
    jobs += [guess(11), guess(job)]

    assert find_target(None, None, lambda jobs: jobs[-1]).info.pid == job


def test_the_gpu_decides_among_several(jobs: list[JobGuess], job: int) -> None:
    jobs += [guess(11, 0), guess(job, 1)]

    assert find_target(None, 1).info.pid == job


def test_a_job_that_shows_no_gpu_may_use_any(jobs: list[JobGuess], job: int) -> None:
    jobs += [guess(11, 0), guess(job)]

    assert find_target(None, 1).info.pid == job


def test_no_such_gpu_lists_those_that_exist(jobs: list[JobGuess]) -> None:
    with pytest.raises(UsageError) as refused:
        find_target(None, 2)

    assert (refused.value.message, refused.value.hint) == ("there is no GPU 2", "choose from 0, 1")


def test_without_nvml_the_reason_is_named(jobs: list[JobGuess], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeGpus, "indices", ())
    monkeypatch.setattr(FakeGpus, "problem", "NVML is not installed")

    with pytest.raises(UsageError, match="there is no GPU 0: NVML is not installed"):
        find_target(None, 0)
    with pytest.raises(UsageError, match=r"no training job of yours was found \(NVML is not installed\)"):
        find_target(None, None)


def test_a_job_that_has_just_ended_is_refused(jobs: list[JobGuess], job: int) -> None:
    jobs.append(replace(guess(job), pid=2**22))

    with pytest.raises(UsageError, match="has just ended"):
        find_target(None, None)


def test_a_started_job_is_read_or_nameless_when_it_has_ended(job: int) -> None:
    notes: SimpleQueue[str] = SimpleQueue()
    running = started_target(cast(JobProcess, SimpleNamespace(pid=job)), None, notes)
    ended = started_target(cast(JobProcess, SimpleNamespace(pid=2**22)), None, notes)

    assert (running.info.pid, running.info.parent, running.found) == (job, os.getpid(), "started by pipetune")
    assert (ended.info.pid, ended.info.name, ended.info.command) == (2**22, "?", ())
    assert running.notes is notes
