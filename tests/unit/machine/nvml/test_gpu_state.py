from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pipetune.machine.nvml import gpu_state as module
from pipetune.machine.nvml.gpu import GpuInfo, NvmlUnavailable
from pipetune.machine.nvml.gpu_state import GpuState, ask_gpus, describe_gpus
from tests import fake_nvml

ONE = "uuid GPU-first\nname Fake A\ndriver 550.54\ncuda 12080\nnvmlDeviceGetMemoryInfo 5\n"


def fake_driver(library: Path, scenario: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in fake_nvml.environment(library, scenario, folder=folder).items():
        monkeypatch.setenv(name, value)


def test_the_answer_of_another_process(nvml_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_driver(nvml_library, ONE, tmp_path, monkeypatch)
    state = ask_gpus(60)
    assert [(gpu.uuid, gpu.name) for gpu in state.gpus] == [("GPU-first", "Fake A")]
    assert (state.driver, state.cuda, state.problem) == ("550.54", 12080, None)


def test_a_refusal_of_another_process(nvml_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_driver(nvml_library, "nvmlInit !9", tmp_path, monkeypatch)
    problem = ask_gpus(60).problem
    assert problem is not None
    assert problem.reason == "no_driver"
    assert "not loaded" in problem.message
    assert "modprobe" in (problem.hint or "")


def test_a_driver_that_hangs(nvml_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_driver(nvml_library, "nvmlInit 600000~0", tmp_path, monkeypatch)
    problem = ask_gpus(1.5).problem
    assert problem is not None
    assert (problem.message, problem.reason) == ("NVML did not answer within 1.5 s", "no_answer")
    assert "nvidia-smi" in (problem.hint or "")
    assert "reboot" in (problem.hint or "")


def test_a_process_that_cannot_be_killed_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[subprocess.Popen[str]] = []
    kill = subprocess.Popen.kill

    def in_vain(process: subprocess.Popen[str]) -> None:
        killed.append(process)

    monkeypatch.setattr(subprocess.Popen, "kill", in_vain)
    monkeypatch.setattr(module, "_PROGRAM", "import time; time.sleep(600)")
    state = ask_gpus(0.1)
    (process,) = killed
    still_runs = process.poll() is None
    kill(process)
    process.communicate()
    assert still_runs, "it was waited for"
    assert state.problem is not None


@pytest.mark.parametrize(
    ("program", "told"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "ended with -9: it printed nothing"),
        ("import no_such_module", "ended with 1: ModuleNotFoundError"),
    ],
)
def test_a_process_that_ends_without_an_answer(program: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PROGRAM", program)
    problem = ask_gpus(60).problem
    assert problem is not None
    assert told in problem.message


def test_a_process_that_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/no/such/python")
    problem = ask_gpus(60).problem
    assert problem is not None
    assert "No such file" in problem.message


def test_the_driver_is_asked_through_a_gpu_that_works(monkeypatch: pytest.MonkeyPatch) -> None:
    class FakeGpu:
        driver_version = "580.65"
        cuda_version = 13000
        closed = 0

        def close(self) -> None:
            FakeGpu.closed += 1

    def open_fake(index: int) -> FakeGpu:
        if index == 0:
            raise NvmlUnavailable("GPU is lost", reason="nvml_error")
        return FakeGpu()

    gpus = (GpuInfo(index=0, problem="GPU is lost"), GpuInfo(index=1), GpuInfo(index=2))
    monkeypatch.setattr(module, "list_gpus", lambda: gpus)
    monkeypatch.setattr(module, "open_gpu", open_fake)
    assert describe_gpus() == GpuState(gpus=gpus, driver="580.65", cuda=13000)
    assert FakeGpu.closed == 1
    monkeypatch.setattr(module, "list_gpus", lambda: gpus[:1])
    assert describe_gpus() == GpuState(gpus=gpus[:1])
