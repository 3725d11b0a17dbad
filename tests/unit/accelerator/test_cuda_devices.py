from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from pipetune.accelerator import cuda_devices
from pipetune.accelerator.cuda_devices import amd_driver, intel_gpu
from pipetune.machine.nvml.gpu import GpuInfo, NvmlUnavailable
from pipetune.machine.nvml.gpu_state import GpuState

built_for, ask_nvml = cuda_devices._built_for, cuda_devices._ask_nvml


@pytest.fixture(autouse=True)
def _plain_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """No GPU of another maker, and a torch for CUDA, whatever this machine has."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    machine(monkeypatch)


def machine(monkeypatch: pytest.MonkeyPatch, *, amd: bool = False, intel: bool = False, torch: str = "cuda") -> None:
    monkeypatch.setattr(cuda_devices, "amd_driver", lambda: amd)
    monkeypatch.setattr(cuda_devices, "intel_gpu", lambda: intel)
    monkeypatch.setattr(cuda_devices, "_built_for", lambda platform: platform == torch)


def says(**found: object) -> str:
    """What torch answers."""
    everything = {"count": 0, "built_for": "13.0", "hip": None, "xpu": 0, "why": None, **found}
    return f"a library prints\ndevices {json.dumps(everything)}\n"


def answers(monkeypatch: pytest.MonkeyPatch, gpus: int | None, stdout: str = "", stderr: str = "") -> list[object]:
    asked: list[object] = []

    def ask_nvml() -> GpuState:
        if gpus is None:
            return GpuState(problem=NvmlUnavailable("no library", reason="no_library"))
        return GpuState(gpus=tuple(GpuInfo(index=number, uuid=f"GPU-{number}") for number in range(gpus)))

    def run(command: object, **_: object) -> SimpleNamespace:
        asked.append(command)
        return SimpleNamespace(stdout=stdout, stderr=stderr, returncode=1)

    monkeypatch.setattr(cuda_devices, "_ask_nvml", ask_nvml)
    monkeypatch.setattr(subprocess, "run", run)
    return asked


def test_without_a_gpu_torch_is_not_even_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for gpus in (None, 0):
        asked = answers(monkeypatch, gpus)
        assert cuda_devices.count_cuda_devices(wanted=False) == (0, None)
        machine(monkeypatch, intel=True)  # the graphics of nearly every laptop
        assert cuda_devices.count_cuda_devices(wanted=False) == (0, None)
        assert asked == []


def test_a_device_named_by_the_user_is_asked_for_even_without_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, None, says(count=1))
    assert cuda_devices.count_cuda_devices(wanted=True) == (1, None)
    answers(monkeypatch, None, says(why="Found no NVIDIA driver on your system. Please check that you have one"))
    assert cuda_devices.count_cuda_devices(wanted=True) == (0, "Found no NVIDIA driver on your system")


@pytest.mark.parametrize("wanted", [False, True])
def test_a_driver_that_hangs_is_not_waited_for_by_torch(wanted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answers(monkeypatch, 1, says(count=1))
    problem = NvmlUnavailable("NVML did not answer within 10 s", reason="no_answer", hint="run nvidia-smi")
    monkeypatch.setattr(cuda_devices, "_ask_nvml", lambda: GpuState(problem=problem))
    told = "NVML did not answer within 10 s (run nvidia-smi)"
    assert cuda_devices.count_cuda_devices(wanted) == (0, told)
    assert asked == []


def test_without_nvml_no_process_asks_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_library(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    asked: list[GpuState] = []
    monkeypatch.setattr(cuda_devices, "ask_gpus", lambda: asked.append(GpuState()) or GpuState(driver="580"))
    monkeypatch.setattr(cuda_devices.ctypes, "CDLL", no_library)
    assert ask_nvml() == GpuState()
    assert asked == []
    monkeypatch.setattr(cuda_devices.ctypes, "CDLL", lambda name: None)
    assert ask_nvml() == GpuState(driver="580")


def test_torch_decides_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, 8, says(count=2))
    assert cuda_devices.count_cuda_devices(wanted=False) == (2, None)


def test_an_amd_gpu_is_a_cuda_device_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, amd=True, torch="hip")
    answers(monkeypatch, None, says(count=4, built_for=None, hip="6.4"))
    count, remark = cuda_devices.count_cuda_devices(wanted=False)
    assert count == 4
    assert remark is not None
    assert "ROCm" in remark
    assert "not run on such hardware" in remark


def test_an_amd_gpu_without_a_torch_for_it_is_mentioned_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, amd=True)
    asked = answers(monkeypatch, None)
    count, remark = cuda_devices.count_cuda_devices(wanted=False)
    assert (count, asked) == (0, [])
    assert remark is not None
    assert "ROCm" in remark


def test_an_intel_gpu_is_mentioned_and_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, intel=True, torch="xpu")
    answers(monkeypatch, None, says(xpu=1, built_for=None, why="Torch not compiled with CUDA enabled"))
    count, remark = cuda_devices.count_cuda_devices(wanted=False)
    assert count == 0
    assert remark is not None
    assert "--device xpu:0" in remark


def test_intel_gpus_are_counted_where_torch_is_built_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, intel=True, torch="xpu")
    answers(monkeypatch, None, says(xpu=2, built_for=None))
    assert cuda_devices.count_xpu_devices() == (2, f"an Intel GPU (XPU): {cuda_devices._NOT_RUN}")
    machine(monkeypatch, intel=True, torch="cuda")
    assert cuda_devices.count_xpu_devices()[0] == 0
    assert "not built for XPU" in cuda_devices.count_xpu_devices()[1]


@pytest.mark.parametrize(
    ("stdout", "stderr", "visible", "told"),
    [
        (says(why="Torch not compiled with CUDA enabled"), "", None, "built for the CPU"),
        (says(why="The NVIDIA driver on your system is too old (found version 11080). Please"), "", None, "CUDA 11.8,"),
        (says(why="No CUDA GPUs are available"), "", None, "No CUDA GPUs are available"),
        (says(why="No CUDA GPUs are available"), "", "GPU-dead", "CUDA_VISIBLE_DEVICES='GPU-dead'"),
        (says(why="No CUDA GPUs are available"), "", "-1", "hides them"),
        ("", "Traceback\nImportError: libcudnn.so", None, "ImportError: libcudnn.so"),
        ("", "", None, "exit code 1"),
    ],
)
def test_gpus_that_torch_cannot_use_come_with_the_reason(
    stdout: str, stderr: str, visible: str | None, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    answers(monkeypatch, 1, stdout, stderr)
    count, why = cuda_devices.count_cuda_devices(wanted=False)
    assert count == 0
    assert why is not None
    assert why.startswith("NVML sees 1 GPU, torch can use none: ")
    assert told in why
    assert "\n" not in why


@pytest.mark.parametrize(("vendor", "found"), [("0x8086\n", True), ("0x1002\n", False), (None, False)])
def test_intels_gpus_are_found_by_their_vendor(vendor: str | None, found: bool, tmp_path: Path) -> None:
    if vendor is not None:
        (tmp_path / "class/drm/renderD128/device").mkdir(parents=True)
        (tmp_path / "class/drm/renderD128/device/vendor").write_text(vendor)
    assert intel_gpu(str(tmp_path)) == found


def test_amds_driver_is_found_by_its_file(tmp_path: Path) -> None:
    assert not amd_driver(str(tmp_path))
    (tmp_path / "kfd").touch()
    assert amd_driver(str(tmp_path))


@pytest.mark.parametrize(
    ("text", "platforms"),
    [
        ("cuda: Optional[str] = '13.0'\nhip: Optional[str] = None\nxpu: Optional[str] = None\n", []),
        ("cuda: Optional[str] = None\nhip: Optional[str] = '6.4.43482'\n", ["hip"]),
        ('cuda = None\nhip = None\nxpu = "20250201"\n', ["xpu"]),
        (None, []),
    ],
)
def test_what_torch_is_built_for_is_read_from_its_files(
    text: str | None, platforms: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if text is not None:
        (tmp_path / "version.py").write_text(text)
    spec = SimpleNamespace(origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: spec)
    assert [name for name in ("hip", "xpu") if built_for(name)] == platforms


def test_the_real_machine_gives_a_consistent_answer() -> None:
    count, why = cuda_devices.count_cuda_devices(wanted=False)
    assert count >= 0
    assert why is None or count == 0
