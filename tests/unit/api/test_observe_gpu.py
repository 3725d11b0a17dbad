"""An observed loop and its GPU: read from the moment on at which the loop uses it, and left alone where it hangs."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import pipetune
from pipetune.records.observation import GpuReading
from pipetune.usercode.loop_clock import HostClock
from tests.unit.api.test_observe import Slow


class FakeGpu:
    name, lost = "Fake A", None

    def __init__(self) -> None:
        self.closed = 0
        self.read_twice, self.answers = threading.Event(), threading.Event()
        self.answers.set()

    def read(self) -> GpuReading:
        assert self.answers.wait(30)
        self.read_twice.set()
        return GpuReading(util_pct=40.0)

    def close(self) -> None:
        self.closed += 1


class Device(HostClock):
    name = "cuda"

    def gpu_uuid(self) -> str | None:
        return "GPU-1"


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    made = FakeGpu()
    monkeypatch.setattr("pipetune.api.observe.open_gpu_in_time", lambda uuid: made)
    return made


def test_a_model_that_comes_to_the_gpu_inside_the_with_is_timed_and_its_gpu_read_there(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pipetune.observe(Slow(10), out=tmp_path / "run", interval_s=0.01) as seen:
        assert seen.run.info["gpu"] is None
        monkeypatch.setattr("pipetune.api.observe.clock_for", lambda device: Device())
        for _ in seen:
            pass
        assert (seen.run.info["clock"], seen.run.info["gpu"]) == ("cuda", "Fake A")
        assert len(seen.steps()) == 10
        assert gpu.read_twice.wait(30)

    assert gpu.closed
    assert seen._readings[-1].gpu == GpuReading(util_pct=40.0)
    assert pipetune.load(tmp_path / "run").info["gpu"] == "Fake A"


def test_a_driver_that_hangs_does_not_keep_the_training_from_going_on(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipetune.api.observe.clock_for", lambda device: Device())
    monkeypatch.setattr("pipetune.sampler.loop.Sampler.stop.__defaults__", (0.1,))
    gpu.answers.clear()
    with (
        pytest.warns(UserWarning, match="the GPU's driver may not answer"),
        pipetune.observe([1], save=False, interval_s=0.01) as seen,
    ):
        assert list(seen) == [1]
    assert gpu.closed == 0
    gpu.answers.set()
