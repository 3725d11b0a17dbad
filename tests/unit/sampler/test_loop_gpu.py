"""A sampler's GPU: read and closed by the sampler's thread alone, which is left behind where a driver hangs."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import cast

from pipetune.machine.nvml.gpu import Gpu
from pipetune.records.observation import GpuReading, Reading
from pipetune.sampler.loop import Sampler, stop_all
from tests import fake_nvml
from tests.unit.sampler.test_loop import LONG_S, FakeGpu


class HangingGpu(FakeGpu):
    """A GPU whose driver does not answer any more, until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.leave, self.closed = threading.Event(), threading.Event(), threading.Event()
        self.asked_by: list[str] = []

    def read(self) -> GpuReading:
        self.asked_by.append(threading.current_thread().name)
        if self.readings >= 2:
            self.entered.set()
            assert self.leave.wait(LONG_S)
        return super().read()

    def close(self) -> None:
        self.asked_by.append(threading.current_thread().name)
        self.closed.set()


def test_a_reading_that_hangs_is_left_behind_with_the_gpu() -> None:
    gpu = HangingGpu()
    seen: list[Reading] = []
    sampler = Sampler(None, cast(Gpu, gpu), interval_s=0.002, on_reading=seen.append)
    sampler.start()
    assert gpu.entered.wait(LONG_S)

    assert not sampler.stop(0.05)
    began_s = time.monotonic()
    assert not sampler.stop(), "it was waited for again"
    assert time.monotonic() - began_s < 5
    assert not gpu.closed.is_set()
    count = len(seen)

    gpu.leave.set()
    assert gpu.closed.wait(LONG_S)
    for thread in threading.enumerate():
        if thread.name == "pipetune-sampler":
            thread.join(LONG_S)
    assert sampler.stop()
    assert len(seen) == count, "a reading was reported that nobody waits for any more"
    assert "MainThread" not in gpu.asked_by[:-1]


def test_several_are_stopped_within_one_limit() -> None:
    hanging = [HangingGpu() for _ in range(3)]
    left = [Sampler(None, cast(Gpu, gpu), interval_s=0.002) for gpu in hanging]
    good = Sampler(None, None, interval_s=0.002)
    for sampler in (*left, good):
        sampler.start()
    for gpu in hanging:
        assert gpu.entered.wait(LONG_S)
    began_s = time.monotonic()

    assert stop_all([*left, good], 0.5) == left

    assert time.monotonic() - began_s < 1.4
    for gpu in hanging:
        gpu.leave.set()
        assert gpu.closed.wait(LONG_S)


def test_the_thread_reads_the_gpu_once_more_at_its_end_and_closes_it() -> None:
    gpu = HangingGpu()
    gpu.leave.set()
    sampler = Sampler(None, cast(Gpu, gpu), interval_s=0.002)
    sampler.start()
    assert gpu.entered.wait(LONG_S)

    assert sampler.stop()

    assert gpu.closed.is_set()
    assert gpu.readings >= len(sampler.readings) + 2, "the first one, which is in no reading, and the last one"


def test_a_gpu_that_comes_later_is_read_from_then_on() -> None:
    gpu = HangingGpu()
    gpu.leave.set()
    sampler = Sampler(None, None, interval_s=0.002)
    sampler.start()
    sampler.use(cast(Gpu, gpu))
    assert gpu.entered.wait(LONG_S)

    assert sampler.stop()
    assert sampler.readings[-1].gpu is not None
    assert gpu.closed.is_set()


def test_the_gpu_of_a_sampler_that_was_not_started_is_closed_too() -> None:
    gpu = HangingGpu()
    assert Sampler(None, cast(Gpu, gpu)).stop()
    assert gpu.closed.is_set()


#: Its driver answers twice. What is printed is how long stopping took (s), and what it returned.
HANGS = """
import sys, time
from pathlib import Path
from pipetune.machine.nvml.in_time import open_gpu_in_time
from pipetune.sampler.loop import Sampler
sampler = Sampler(None, open_gpu_in_time(None), interval_s=0.05)
sampler.start()
log, length = Path(sys.argv[1]), -1
while log.stat().st_size != length:  # it is asked 20 times a second, until it hangs
    length = log.stat().st_size
    time.sleep(0.7)
began = time.monotonic()
ended = sampler.stop(0.3)
print(ended, time.monotonic() - began)
"""


def test_a_driver_that_hangs_does_not_keep_the_process_from_ending(nvml_library: Path, tmp_path: Path) -> None:
    scenario = fake_nvml.HEALTHY + "nvmlDeviceGetSamples now=95 now=95 600000~now=95 ...\n"
    environment = fake_nvml.environment(nvml_library, scenario, folder=tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", HANGS, str(tmp_path / "calls.log")], env=environment, capture_output=True, text=True,
        timeout=LONG_S, check=False,
    )  # fmt: skip
    ended, took_s = done.stdout.split()
    assert ended == "False"
    assert 0.25 < float(took_s) < 5
