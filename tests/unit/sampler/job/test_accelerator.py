from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from pipetune.accelerator.timeline import TimelineWriter
from pipetune.machine.nvml.gpu import Gpu
from pipetune.records.observation import EMULATED, LOADER_WAIT, NVML, BusySpan, GpuReading, GpuSharing
from pipetune.sampler.job.accelerator import DeviceReader, DeviceReading, Neighbours
from tests.unit.sampler.job.fake_job import FakeJob

S = 10**9


class FakeGpu:
    """A GPU with given readings, one after the other."""

    def __init__(self, *readings: GpuReading, lost_after: int | None = None) -> None:
        self._readings, self._lost_after, self.reads = list(readings), lost_after, 0
        self.spans: tuple[BusySpan, ...] = ()
        self.fracs: dict[int, float] | None = None

    @property
    def lost(self) -> str | None:
        return "GPU is lost" if self._lost_after is not None and self.reads >= self._lost_after else None

    def read(self) -> GpuReading:
        self.reads += 1
        return self._readings[min(self.reads, len(self._readings)) - 1]

    def process_fracs(self) -> dict[int, float] | None:
        return self.fracs

    def busy_spans(self, after_ns: int) -> tuple[BusySpan, ...]:
        return tuple(span for span in self.spans[: self.reads] if span.t_end_ns > after_ns)


def _with_gpu(gpu: FakeGpu, pid: int = 10, proc: str = "/nowhere") -> DeviceReader:
    return DeviceReader(pid, cast(Gpu, gpu), proc=proc)


@pytest.fixture
def writer() -> Iterator[TimelineWriter]:
    made = TimelineWriter()
    yield made
    made.close()


@pytest.fixture
def reader() -> Iterator[DeviceReader]:
    made = DeviceReader(os.getpid(), None)
    yield made
    made.close()


def test_without_anything_to_be_seen_nothing_is(tmp_path: Path) -> None:
    reader = DeviceReader(10, None, proc=str(tmp_path))

    assert reader.read(S, search=True) == DeviceReading()
    assert reader.read(S, search=True).source == LOADER_WAIT
    assert reader.lost is None
    reader.close()
    reader.close()


def test_a_gpu_says_how_busy_it_was() -> None:
    reading = GpuReading(util_pct=40.0, sm_active_pct=30.0, power_w=300.0)

    assert _with_gpu(FakeGpu(reading)).read(S, search=True) == DeviceReading(NVML, 0.4, 0.3, None, reading)


def test_each_of_the_drivers_samples_is_told_once() -> None:
    gpu = FakeGpu(GpuReading(util_pct=40.0))
    gpu.spans = tuple(BusySpan(t_start_ns=n * S, t_end_ns=(n + 1) * S, busy_frac=0.1 * n) for n in range(3))
    reader = _with_gpu(gpu)

    told = [reader.read(n * S, search=False).spans for n in range(1, 5)]

    assert told == [(gpu.spans[0],), (gpu.spans[1],), (gpu.spans[2],), ()]


@pytest.mark.parametrize(
    ("fracs", "busy", "others"),
    [
        ({10: 0.2, 11: 0.7}, 0.3, 0.7),  # they take turns: what is not theirs is ours
        ({11: 0.97}, 0.03, 0.97),
        ({10: 0.9}, 1.0, 0.0),  # the other one only holds memory
        ({10: 0.9, 11: 0.9}, 0.9, 0.9),  # both at once, with MPS
        ({10: 0.5, 12: 0.4}, 1.0, 0.0),  # 12 has begun since the processes were listed
        (None, 1.0, None),
    ],
)
def test_a_job_is_credited_with_its_own_share_of_a_gpu(
    fracs: dict[int, float] | None, busy: float, others: float | None
) -> None:
    gpu = FakeGpu(GpuReading(util_pct=100.0, sm_active_pct=50.0))
    gpu.spans, gpu.fracs = (BusySpan(t_start_ns=0, t_end_ns=S, busy_frac=1.0),), fracs
    neighbours = Neighbours(frozenset({10}), {11: "notebook (11)"})
    reader = DeviceReader(10, cast(Gpu, gpu), neighbours=lambda _: neighbours, proc="/nowhere")

    reading = reader.read(S, search=False)

    assert reading.busy_frac == pytest.approx(busy)
    assert reading.active_frac == pytest.approx(busy / 2)
    assert [span.busy_frac for span in reading.spans] == [pytest.approx(busy)]
    assert reading.sharing == GpuSharing(processes=("notebook (11)",), others_frac=others)


def test_whose_share_is_the_jobs_may_be_unknown() -> None:
    gpu = FakeGpu(GpuReading(util_pct=100.0))
    gpu.fracs = {41: 0.5, 42: 0.5}
    neighbours = Neighbours(frozenset(), {41: "process 41", 42: "process 42"})
    reader = DeviceReader(10, cast(Gpu, gpu), neighbours=lambda _: neighbours, proc="/nowhere")

    reading = reader.read(S, search=False)

    assert (reading.busy_frac, reading.sharing) == (
        1.0,
        GpuSharing(processes=("process 41", "process 42"), others_frac=None),
    )


def test_a_slice_of_a_gpu_is_as_busy_as_its_multiprocessors() -> None:
    assert _with_gpu(FakeGpu(GpuReading(sm_active_pct=30.0))).read(S, search=False)[:3] == (NVML, 0.3, 0.3)


def test_a_gpu_that_says_nothing_is_not_idle() -> None:
    gpu = GpuReading(mem_used_bytes=5)

    reading = _with_gpu(FakeGpu(gpu)).read(S, search=False)

    assert reading == DeviceReading(LOADER_WAIT, None, None, None, gpu)


def test_a_gpu_is_asked_before_a_timeline(writer: TimelineWriter) -> None:
    writer.add(0, S, S)
    reader = _with_gpu(FakeGpu(GpuReading(util_pct=7.0)), os.getpid(), "/proc")

    assert reader.read(S, search=True).source == NVML


def test_a_gpu_that_is_lost_is_not_asked_again() -> None:
    gpu = FakeGpu(GpuReading(util_pct=40.0), lost_after=2)
    reader = _with_gpu(gpu)

    readings = [reader.read(number * S, search=False) for number in range(1, 5)]

    assert [reading.source for reading in readings] == [NVML, LOADER_WAIT, LOADER_WAIT, LOADER_WAIT]
    assert gpu.reads == 2
    assert reader.lost == "GPU is lost"


def test_a_gpu_that_the_job_opens_later_is_used_from_then_on() -> None:
    reader = DeviceReader(10, None, proc="/nowhere")
    before = reader.read(S, search=True)

    reader.use(cast(Gpu, FakeGpu(GpuReading(util_pct=50.0))))

    assert (before.source, reader.read(2 * S, search=True).source) == (LOADER_WAIT, NVML)


def test_an_emulated_device_is_read_since_the_last_reading(writer: TimelineWriter, reader: DeviceReader) -> None:
    first = reader.read(10 * S, search=True)
    writer.add(10 * S, 10 * S + S // 4, S // 8)
    second = reader.read(11 * S, search=False)
    writer.add(11 * S + S // 2, 13 * S, S)
    third = reader.read(12 * S, search=False)

    assert first == DeviceReading(EMULATED)
    assert second == DeviceReading(EMULATED, 0.25, 0.125, True)
    assert third.busy_frac == pytest.approx(0.5)
    assert third.idle_now is False


def test_a_timeline_is_searched_for_only_on_request(reader: DeviceReader) -> None:
    assert reader.read(S, search=True).source == LOADER_WAIT
    writer = TimelineWriter()
    try:
        assert reader.read(2 * S, search=False).source == LOADER_WAIT
        assert reader.read(3 * S, search=True).source == EMULATED
    finally:
        writer.close()


def test_steps_longer_than_a_reading_count_in_all_of_them(writer: TimelineWriter, reader: DeviceReader) -> None:
    reader.read(10 * S, search=True)
    writer.add(10 * S, 40 * S, 30 * S)

    assert [reader.read(t * S, search=False).busy_frac for t in (15, 20, 39)] == [1.0, 1.0, 1.0]


def test_a_timeline_of_a_device_that_was_closed_stays_readable(writer: TimelineWriter, reader: DeviceReader) -> None:
    reader.read(S, search=True)
    writer.add(S, 2 * S, S)
    writer.close()

    assert reader.read(2 * S, search=True).busy_frac == 1.0
    assert reader.read(3 * S, search=True).busy_frac == 0.0


def test_a_timeline_that_is_gone_is_passed_over(tmp_path: Path) -> None:
    fake = FakeJob(tmp_path)
    fake.job(10)
    fake.opens(10, 3, "/memfd:pipetune-device-timeline (deleted)")  # and it is gone

    assert DeviceReader(10, None, proc=fake.path).read(S, search=True) == DeviceReading()


def test_a_device_that_takes_the_place_of_another_is_read() -> None:
    # The lowest free number is given out first: that of the old one.
    code = (
        "from pipetune.accelerator.timeline import TimelineWriter as New; old = New(); print(1, flush=True); input(); "
        "old.close(); new = New(); new.add(10**9, 11 * 10**9, 1); print(2, flush=True); input()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        reader = DeviceReader(process.pid, None)
        reader.read(S, search=True)
        process.stdin.write(b"\n")
        process.stdin.flush()
        process.stdout.readline()
        reading = reader.read(11 * S, search=True)  # searched for every ten seconds while there is one
        reader.close()
        process.communicate(b"\n")

    assert reading.busy_frac == 1.0
