"""A session's GPU: NVML says whether it is lost, and a driver that hangs costs its readings alone."""

from __future__ import annotations

import os
import textwrap
import threading

import pytest

from pipetune.measure import sampled_gpu
from pipetune.measure import session as module
from pipetune.measure.conditions import Conditions
from pipetune.measure.recording import Recording
from pipetune.measure.session import Session
from pipetune.processes.signals import DeferredSignals
from pipetune.records.observation import BusySpan, GpuReading
from pipetune.records.sweep import AcceleratorSpec, Failure
from pipetune.sampler import loop
from tests.photo_set import workload
from tests.unit.measure.test_session import PREAMBLE


class FakeGpu:
    """A GPU that NVML has lost, or has not."""

    driver_version = "550"

    def __init__(self, lost: str | None) -> None:
        self._lost = lost
        self.lost: str | None = None

    def read(self) -> GpuReading:
        self.lost = self._lost
        return GpuReading()

    def busy_spans(self, after_ns: int) -> tuple[BusySpan, ...]:
        return ()

    def describe_slow_utilisation(self, interval_s: float) -> str | None:
        return f"NVML takes long; asked for every {interval_s:g} s"

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("said", "message", "lost", "kind"),
    [
        ("device_error", "launch failure", "nvmlDeviceGetSamples: GPU is lost", "device_lost"),
        ("error", "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED", "nvmlDeviceGetSamples: GPU is lost", "device_lost"),
        ("device_error", "launch failure", None, "device_error"),
        ("error", "strange", "nvmlDeviceGetSamples: GPU is lost", "error"),
    ],
)
def test_nvml_is_asked_whether_the_device_is_lost(
    said: str, message: str, lost: str | None, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampled_gpu, "open_gpu_in_time", lambda uuid: FakeGpu(lost))
    monkeypatch.setattr(module, "_PROGRAM", PREAMBLE + textwrap.dedent(f"""
        hello()
        send("failure", failure=dict(kind="{said}", phase="timed", message="{message}", hint="look"))
    """))  # fmt: skip
    on_gpu = workload(accelerator=AcceleratorSpec(kind="cuda", name="GPU", device_index=0))
    conditions = Conditions(workload=on_gpu, paths=(), cores=frozenset(os.sched_getaffinity(0)))
    recording = Recording()
    session = Session(recording, conditions, lambda live: None, DeferredSignals())
    try:
        session.start({})
        session.send(b'{"role": "x"}\n')
        failure = session.confirmed(session.follow(30.0))
    finally:
        session.close()
    assert failure is not None
    assert failure.kind == kind
    assert ("NVML takes long; asked for every 0.1 s" in recording.notes) == (lost is None)
    assert ("GPU is lost" in failure.message) == (kind == "device_lost")


def test_a_driver_that_hangs_is_left_behind_and_the_measurement_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    entered, leave = threading.Event(), threading.Event()
    touched: list[str] = []

    class Hanging(FakeGpu):
        def read(self) -> GpuReading:
            entered.set()
            assert leave.wait(30)
            return GpuReading()

        def busy_spans(self, after_ns: int) -> tuple[BusySpan, ...]:
            touched.append("busy_spans")
            return ()

        def close(self) -> None:
            touched.append(threading.current_thread().name)

    monkeypatch.setattr(sampled_gpu, "open_gpu_in_time", lambda uuid: Hanging(None))
    monkeypatch.setattr(module, "stop_all", lambda samplers: loop.stop_all(samplers, 0.2))
    monkeypatch.setattr(module, "_PROGRAM", PREAMBLE + "hello(); result(); send('closed', speed_after=None)")
    on_gpu = workload(accelerator=AcceleratorSpec(kind="cuda", name="GPU", device_index=0))
    conditions = Conditions(workload=on_gpu, paths=(), cores=frozenset(os.sched_getaffinity(0)))
    recording = Recording()
    session = Session(recording, conditions, lambda live: None, DeferredSignals())
    try:
        session.start({})
        session.send(b'{"role": "x"}\n')
        assert session.confirmed(session.follow(30.0)) is None
        assert entered.wait(30)
        lost = Failure(kind="device_error", phase="timed", message="launch failure", hint="look")
        assert session.confirmed(lost) == lost
    finally:
        session.close()
    assert touched == []
    assert recording.notes[-1] == loop.LEFT_BEHIND
    leave.set()
