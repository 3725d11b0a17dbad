from __future__ import annotations

import subprocess
from types import SimpleNamespace

import pytest

from pipetune.accelerator import cuda_devices
from pipetune.machine.nvml.gpu import NvmlUnavailable


def answers(monkeypatch: pytest.MonkeyPatch, gpus: int | None, stdout: str = "", stderr: str = "") -> list[object]:
    asked: list[object] = []

    def list_gpus() -> tuple[object, ...]:
        if gpus is None:
            raise NvmlUnavailable("no library", reason="no_library")
        return (object(),) * gpus

    def run(command: object, **_: object) -> SimpleNamespace:
        asked.append(command)
        return SimpleNamespace(stdout=stdout, stderr=stderr, returncode=0)

    monkeypatch.setattr(cuda_devices, "list_gpus", list_gpus)
    monkeypatch.setattr(subprocess, "run", run)
    return asked


def test_without_a_gpu_torch_is_not_even_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for gpus in (None, 0):
        asked = answers(monkeypatch, gpus)
        assert cuda_devices.count_cuda_devices(wanted=False) == (0, None)
        assert asked == []


def test_a_device_named_by_the_user_is_asked_for_even_without_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(answers(monkeypatch, None, stdout="devices 1\n")) == 0
    assert cuda_devices.count_cuda_devices(wanted=True) == (1, None)


def test_torch_decides_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, 8, stdout="devices 2\n")
    assert cuda_devices.count_cuda_devices(wanted=False) == (2, None)


def test_gpus_that_torch_cannot_use_come_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, 1, stdout="devices 0\n", stderr="…\nUserWarning: driver too old")
    count, why = cuda_devices.count_cuda_devices(wanted=False)
    assert count == 0
    assert why == "NVML sees 1 GPU, torch can use none (UserWarning: driver too old)"


def test_the_real_machine_gives_a_consistent_answer() -> None:
    count, why = cuda_devices.count_cuda_devices(wanted=False)
    assert count >= 0
    assert why is None or count == 0
