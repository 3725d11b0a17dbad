from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from pipetune.sampler.job import thread_names as module
from pipetune.sampler.job.thread_names import ThreadNames
from tests.unit.sampler.job.fake_job import FakeJob


@pytest.fixture
def fake(tmp_path: Path) -> FakeJob:
    made = FakeJob(tmp_path)
    made.job(10)
    made.named_thread(10, 14, "[DALI][WT] 1")
    made.named_thread(10, 15, "python")
    return made


class Reads:
    """Counts the names that are read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.paths: list[str] = []
        real = module.read_once
        monkeypatch.setattr(module, "read_once", lambda path: (self.paths.append(path), real(path))[1])

    def taken(self) -> list[str]:
        seen, self.paths = sorted(path.split("/")[-2] for path in self.paths), []
        return seen


def test_threads_have_their_names(fake: FakeJob) -> None:
    names = ThreadNames(fake.path)

    assert names.of(10) == {10: "python", 14: "[DALI][WT] 1", 15: "python"}
    assert names.of_loader(10) == {14: "[DALI][WT] 1"}
    assert names.of(99) == {}


def test_a_name_is_read_when_a_thread_is_new_and_once_more(fake: FakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    names, reads = ThreadNames(fake.path), Reads(monkeypatch)

    names.of(10)
    assert reads.taken() == ["10", "14", "15"]
    fake.named_thread(10, 15, "pt_data_pin")  # it has got its name after its start
    assert names.of_loader(10) == {14: "[DALI][WT] 1", 15: "pt_data_pin"}
    assert reads.taken() == ["10", "14", "15"]
    fake.named_thread(10, 16, "pt_thread_data_0")
    for _ in range(6):
        names.of(10)
    assert reads.taken() == ["16", "16"]
    assert set(names.of_loader(10)) == {14, 15, 16}


def test_while_their_number_stays_many_threads_are_seldom_listed(
    fake: FakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MANY", 0)
    names = ThreadNames(fake.path)
    names.of(10)
    names.of(10)
    listed: list[str] = []
    monkeypatch.setattr(os, "listdir", lambda path, real=os.listdir: (listed.append(path), real(path))[1])

    for _ in range(20):
        names.of(10)
    assert len(listed) == 2
    listed.clear()
    names.expect_change(10)
    names.of(10)
    assert len(listed) == 1


def test_a_thread_that_took_the_place_of_another_is_found(fake: FakeJob) -> None:
    names = ThreadNames(fake.path)
    names.of(10)
    names.of(10)
    fake.end_thread(10, 14)
    fake.named_thread(10, 20, "pt_thread_data_7")

    for _ in range(2):
        found = names.of_loader(10)

    assert found == {20: "pt_thread_data_7"}


def test_real_threads_are_counted_by_their_folder() -> None:
    names, stop = ThreadNames(), threading.Event()
    before = len(names.of(os.getpid()))
    threads = [threading.Thread(target=stop.wait) for _ in range(20)]
    for thread in threads:
        thread.start()
    during = len(names.of(os.getpid()))
    stop.set()
    for thread in threads:
        thread.join()
    deadline = time.monotonic() + 30
    while len(os.listdir("/proc/self/task")) > before and time.monotonic() < deadline:
        time.sleep(0.01)  # a joined thread is in /proc until the kernel has ended it

    assert during == before + 20
    assert len(names.of(os.getpid())) <= during - 20
