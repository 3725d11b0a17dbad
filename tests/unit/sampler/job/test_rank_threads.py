"""Threads of a training process that has no loader workers, and processes of very many threads."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipetune.machine.proc import TICK_S
from pipetune.records.observation import RankReading
from pipetune.sampler.job import rank as module
from pipetune.sampler.job.rank import RankReader
from pipetune.sampler.job.roles import read_info
from tests.fakes import Clock
from tests.unit.sampler.job.fake_job import WORKER, FakeJob

S = 10**9
TICKS_PER_S = round(1 / TICK_S)


@pytest.fixture
def fake(tmp_path: Path) -> FakeJob:
    made = FakeJob(tmp_path)
    made.job(10)
    made.named_thread(10, 14, "python")
    return made


def _reader(fake: FakeJob) -> RankReader:
    info = read_info(10, fake.path)
    assert info is not None
    return RankReader(info, None, proc=fake.path, clock=Clock(), boot_s=lambda: 500.0)


def _read(fake: FakeJob, reader: RankReader, seconds: int) -> RankReading:
    """The process has used a core since its start, and so has its thread."""
    fake.process(10, ticks=seconds * TICKS_PER_S, read_bytes=None)
    stat = (fake.folder / "10/stat").read_text()
    fake.write("10/task/10/stat", stat.replace(f" {seconds * TICKS_PER_S} ", " 0 ", 1))  # its main thread: none
    fake.named_thread(10, 14, "python", ticks=seconds * TICKS_PER_S, state="R")
    reading = reader.read(seconds * S)
    assert reading is not None
    return reading


def test_without_loader_workers_threads_that_compute_are_read(fake: FakeJob) -> None:
    reader = _reader(fake)
    readings = [_read(fake, reader, seconds) for seconds in (1, 3, 5, 6)]

    assert [len(reading.threads) for reading in readings] == [0, 0, 1, 1]
    assert readings[-1].threads[0].cpu_frac == pytest.approx(1.0)
    assert (readings[-1].workers, readings[-1].worker_kind) == ((), None)
    reader.close()


def test_beside_loader_workers_they_are_not(fake: FakeJob) -> None:
    fake.job(11, 10, comm=WORKER)
    reader = _reader(fake)

    assert [_read(fake, reader, seconds).threads for seconds in (1, 3, 5, 7)] == [()] * 4


def test_a_reading_says_how_old_the_process_is(fake: FakeJob) -> None:
    assert _read(fake, _reader(fake), 1).age_s == pytest.approx(500 - 100 * TICK_S)


def test_the_sum_of_very_many_threads_is_read_seldom(fake: FakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MANY_THREADS", 0)
    reader = _reader(fake)
    shares = [_read(fake, reader, seconds).process_cpu_frac for seconds in range(1, 10)]

    assert shares == pytest.approx([0.0] * 4 + [1.0] * 5)
    monkeypatch.setattr(module, "_MANY_THREADS", 500)
    assert _read(fake, reader, 10).process_cpu_frac == pytest.approx(1.0)
