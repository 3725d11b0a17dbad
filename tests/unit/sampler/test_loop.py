from __future__ import annotations

import itertools
import os
import threading
from collections import deque
from pathlib import Path
from typing import Any, cast

import pytest

from pipetune.machine.nvml.gpu import Gpu
from pipetune.records.observation import GpuReading, Reading
from pipetune.sampler.loop import Observer, Sampler, throttled_interval_s
from tests.fakes import Clock
from tests.unit.machine.fake_proc import FakeProc

#: As good as never, for tests that wait for an event and must not hang.
LONG_S = 30.0


class FakeGpu:
    """A GPU that is lost after some readings."""

    def __init__(self, readings: int = 10**9) -> None:
        self.lost: str | None = None
        self.readings = 0
        self._good = readings

    def read(self) -> GpuReading:
        self.readings += 1
        if self.readings > self._good:
            self.lost = "GPU is lost"
            return GpuReading()
        return GpuReading(util_pct=float(self.readings))


def _gpu(readings: int = 10**9) -> Gpu:
    return cast(Gpu, FakeGpu(readings))


@pytest.fixture
def fake(tmp_path: Path) -> FakeProc:
    fake = FakeProc(tmp_path)
    fake.machine("cpu  0 0 0 0 0 0 0 0 0 0")
    fake.process(10, ticks=5)
    return fake


@pytest.mark.parametrize(
    ("costs_s", "interval_s"),
    [([], 0.1), ([0.0005], 0.1), ([0.001], 0.1), ([0.002], 0.2), ([0.0005, 0.0035], 0.2)],
)
def test_costly_readings_are_made_less_often(costs_s: list[float], interval_s: float) -> None:
    assert throttled_interval_s(0.1, deque(costs_s), 0.01) == pytest.approx(interval_s)


def test_a_reading_is_a_reading_of_everything(fake: FakeProc) -> None:
    clock = Clock()
    fake.pressure("io", 0)
    observer = Observer(10, _gpu(), clock=clock, proc=fake.path)
    observer.read()
    fake.machine("cpu  20 0 0 70 10 0 0 0 0 0")
    fake.pressure("io", 50_000)
    clock.sleep(0.1)

    reading = observer.read()
    observer.close()

    assert (reading.t_ns, reading.interval_s) == (clock.now_ns, pytest.approx(0.1))
    assert (reading.cpu_busy_pct, reading.cpu_idle_pct, reading.cpu_iowait_pct) == (20.0, 70.0, 10.0)
    assert (reading.psi_cpu_some_pct, reading.psi_io_some_pct, reading.psi_memory_some_pct) == (None, 50.0, None)
    assert reading.tree is not None
    assert reading.tree.processes == 1
    assert reading.gpu == GpuReading(util_pct=2.0)
    assert reading.tick_cost_s > 0


def test_without_a_process_and_a_gpu_the_machine_is_still_read(fake: FakeProc) -> None:
    observer = Observer(None, None, clock=Clock(), proc=fake.path)
    reading = observer.read()
    observer.close()

    assert (reading.tree, reading.gpu) == (None, None)


def test_a_process_that_does_not_exist_is_none(fake: FakeProc) -> None:
    observer = Observer(77, None, clock=Clock(), proc=fake.path)
    reading = observer.read()
    observer.close()

    assert reading.tree is None


def test_a_lost_gpu_is_not_asked_again(fake: FakeProc) -> None:
    gpu = FakeGpu(readings=1)
    observer = Observer(None, cast(Gpu, gpu), clock=Clock(), proc=fake.path)
    readings = [observer.read().gpu for _ in range(4)]
    observer.close()

    assert readings == [GpuReading(util_pct=1.0), None, None, None]
    assert gpu.readings == 2


def _sample(count: int, fake: FakeProc, **options: Any) -> Sampler:
    """Run a sampler until it has made so many readings."""
    enough = threading.Event()
    seen: list[Reading] = []

    def on_reading(reading: Reading) -> None:
        seen.append(reading)
        if len(seen) == count:
            enough.set()

    sampler = Sampler(10, None, interval_s=0.002, on_reading=on_reading, proc=fake.path, **options)
    with sampler:
        assert enough.wait(LONG_S)
    assert sampler.readings == seen[-len(sampler.readings) :]
    return sampler


def test_the_thread_makes_readings_until_it_is_stopped(fake: FakeProc) -> None:
    sampler = _sample(5, fake)
    readings = sampler.readings

    times_ns = [reading.t_ns for reading in readings]
    assert times_ns == sorted(times_ns)
    for before, after in itertools.pairwise(readings):
        assert after.interval_s == pytest.approx((after.t_ns - before.t_ns) / 1e9)
    assert all(reading.tree is not None and reading.interval_s > 0 for reading in readings)
    assert sampler.error is None
    # The first reading costs too and is in no reading.
    assert sampler.cpu_s > sum(reading.tick_cost_s for reading in readings) > 0
    assert not any(thread.name == "pipetune-sampler" for thread in threading.enumerate())


def test_nothing_happens_after_stop(fake: FakeProc) -> None:
    sampler = _sample(3, fake)
    count, cpu_s = len(sampler.readings), sampler.cpu_s

    sampler.stop()

    assert (len(sampler.readings), sampler.cpu_s) == (count, cpu_s)


def test_the_list_of_readings_is_a_copy(fake: FakeProc) -> None:
    sampler = _sample(3, fake)

    sampler.readings.clear()

    assert len(sampler.readings) >= 3


def test_only_the_newest_readings_are_kept_on_request(fake: FakeProc) -> None:
    sampler = _sample(6, fake, keep=2)

    assert len(sampler.readings) == 2


def test_a_sampler_runs_once(fake: FakeProc) -> None:
    sampler = _sample(1, fake)

    with pytest.raises(RuntimeError, match="once"):
        sampler.start()


def test_stop_before_start_is_no_error(fake: FakeProc) -> None:
    sampler = Sampler(10, None, proc=fake.path)
    sampler.stop()

    assert sampler.readings == []


def test_stop_from_the_callback_does_not_wait_for_itself(fake: FakeProc) -> None:
    stopped = threading.Event()

    def on_reading(_reading: Reading) -> None:
        sampler.stop()
        stopped.set()

    sampler = Sampler(10, None, interval_s=0.002, on_reading=on_reading, proc=fake.path)
    sampler.start()

    assert stopped.wait(LONG_S)
    sampler.stop()
    assert len(sampler.readings) == 1


def test_it_stops_at_once_however_long_the_interval(fake: FakeProc) -> None:
    with Sampler(10, None, interval_s=10 * LONG_S, proc=fake.path) as sampler:
        pass

    assert sampler.readings == []


def test_failures_now_and_then_are_recorded_and_do_not_end_the_thread(fake: FakeProc) -> None:
    calls = 0
    enough = threading.Event()

    def on_reading(_reading: Reading) -> None:
        nonlocal calls
        calls += 1
        if calls == 20:
            enough.set()
        if calls % 2:
            raise ZeroDivisionError("every other time")

    with Sampler(10, None, interval_s=0.002, on_reading=on_reading, proc=fake.path) as sampler:
        assert enough.wait(LONG_S)

    assert isinstance(sampler.error, ZeroDivisionError)
    assert len(sampler.readings) >= 20


def test_failures_in_a_row_end_the_thread_and_say_why(fake: FakeProc) -> None:
    calls = 0

    def on_reading(_reading: Reading) -> None:
        nonlocal calls
        calls += 1
        raise ZeroDivisionError(f"number {calls}")

    sampler = Sampler(10, None, interval_s=0.002, on_reading=on_reading, proc=fake.path)
    sampler.start()
    for thread in threading.enumerate():
        if thread.name == "pipetune-sampler":
            thread.join(LONG_S)
    sampler.stop()

    assert str(sampler.error) == "number 5"
    assert calls == 5


def test_a_failure_of_the_first_reading_is_recorded(tmp_path: Path) -> None:
    FakeProc(tmp_path).machine("nonsense")
    sampler = Sampler(None, None, interval_s=0.001, proc=str(tmp_path))
    sampler.start()
    for thread in threading.enumerate():
        if thread.name == "pipetune-sampler":
            thread.join(LONG_S)
    sampler.stop()

    assert isinstance(sampler.error, ValueError)
    assert sampler.readings == []


def test_a_process_that_ends_leaves_the_sampler_running(fake: FakeProc) -> None:
    gone = threading.Event()

    def on_reading(reading: Reading) -> None:
        if reading.tree is None:
            gone.set()
        else:
            fake.end(10)

    with Sampler(10, None, interval_s=0.002, on_reading=on_reading, proc=fake.path) as sampler:
        assert gone.wait(LONG_S)

    assert sampler.error is None


def test_watches_this_very_process() -> None:
    enough = threading.Event()
    with Sampler(os.getpid(), None, frozenset(os.sched_getaffinity(0)), 0.02, lambda _: enough.set()) as sampler:
        assert enough.wait(LONG_S)

    tree = sampler.readings[0].tree
    assert tree is not None
    assert tree.processes >= 1
    assert tree.cpu_s > 0
    assert tree.rss_bytes > 1_000_000
