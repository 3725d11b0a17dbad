from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from pipetune.sampler.job import computing as module
from pipetune.sampler.job.computing import ComputingThreads
from tests.unit.sampler.job.fake_job import FakeJob

S = 10**9
NAMES = {10: "python", 14: "python", 15: "python", 16: "pt_autograd_0"}


@pytest.fixture
def fake(tmp_path: Path) -> FakeJob:
    made = FakeJob(tmp_path)
    made.job(10)
    _at(made, 0)
    return made


def _at(fake: FakeJob, ticks: int, *tids: int) -> None:
    """The threads named have used so much; all others stay as they are."""
    for tid in tids or (14, 15, 16):
        fake.named_thread(10, tid, NAMES.get(tid, "python"), ticks=ticks, state="R")


def test_threads_that_compute_are_followed_from_the_second_search_on(fake: FakeJob) -> None:
    threads = ComputingThreads(10, fake.path)

    threads.find(0, NAMES)
    assert threads.read(0) == ()
    _at(fake, 50, 10, 14, 16)
    threads.find(2 * S, NAMES)
    assert threads.read(2 * S) == ()  # it covers no time yet
    _at(fake, 100, 14)

    (task,) = threads.read(3 * S)
    assert (task.pid, task.cpu_frac) == (14, pytest.approx(0.5))
    threads.close()
    threads.close()


def test_a_thread_that_computes_no_more_is_left(fake: FakeJob) -> None:
    threads = ComputingThreads(10, fake.path)
    for now, tid in ((0, 14), (2, 14), (4, 15)):
        _at(fake, 50 * now, tid)
        threads.find(now * S, NAMES)
        threads.read(now * S)

    assert [task.pid for task in threads.read(5 * S)] == [15]


def test_a_thread_that_has_ended_is_no_fault(fake: FakeJob) -> None:
    threads = ComputingThreads(10, fake.path)
    threads.find(0, NAMES)
    _at(fake, 50, 14, 15)
    threads.find(2 * S, NAMES)
    threads.read(2 * S)
    fake.end_thread(10, 14)

    assert [task.pid for task in threads.read(3 * S)] == [15]


def test_no_more_than_some_are_followed_and_these_compute_most(fake: FakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_FOLLOWED", 1)
    threads = ComputingThreads(10, fake.path)
    threads.find(0, NAMES)
    _at(fake, 50, 14)
    _at(fake, 60, 15)
    threads.find(2 * S, NAMES)
    threads.read(2 * S)

    assert [task.pid for task in threads.read(3 * S)] == [15]


def test_the_more_threads_there_are_the_less_often_they_are_read(
    fake: FakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[str] = []
    monkeypatch.setattr(module, "read_once", reads.append)
    many = dict.fromkeys(range(100, 3100), "python")
    threads = ComputingThreads(10, fake.path)
    for now in range(0, 100, 2):
        threads.find(now * S, many)

    assert len(reads) == 3 * 3000  # at 0, 36 and 72 s: at some 12 us each, 0.1 % of a core


def test_a_real_thread_that_computes_is_found_among_those_that_sleep() -> None:
    stop, numbers = threading.Event(), []

    def burns() -> None:
        numbers.append(threading.get_native_id())
        while not stop.is_set():
            sum(range(1000))

    sleeper = threading.Thread(target=stop.wait)
    burner = threading.Thread(target=burns)
    for thread in (sleeper, burner):
        thread.start()
    threads = ComputingThreads(os.getpid())
    try:
        found: tuple[int, ...] = ()
        until_s = time.monotonic() + 60
        while not found and time.monotonic() < until_s:
            names = {int(name): "python" for name in os.listdir(f"/proc/{os.getpid()}/task")}
            threads.find(time.monotonic_ns(), names)
            threads.read(time.monotonic_ns())
            time.sleep(0.2)
            found = tuple(task.pid for task in threads.read(time.monotonic_ns()))
    finally:
        stop.set()
        sleeper.join()
        burner.join()
        threads.close()

    assert numbers[0] in found
    assert sleeper.native_id not in found
