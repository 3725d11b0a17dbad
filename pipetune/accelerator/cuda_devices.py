"""What torch can compute on, asked in another process so that this one does not import torch.

NVML is asked in another process, too, because a driver that hangs would hang this one for good.
torch is imported only where there may be something: that takes seconds, and most machines without a GPU have neither
NVIDIA's driver (NVML), nor AMD's (``/dev/kfd``), nor a torch that is built for an Intel GPU.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipetune.machine.nvml.gpu import GpuInfo
from pipetune.machine.nvml.gpu_state import GpuState, ask_gpus

_PROGRAM = """
import json, torch
found = {"count": 0, "built_for": torch.version.cuda, "hip": torch.version.hip, "xpu": 0, "why": None}
try:
    found["count"] = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not found["count"]:
        torch.cuda.init()
except Exception as error:
    found["why"] = str(error)
if hasattr(torch, "xpu") and torch.xpu.is_available():
    found["xpu"] = torch.xpu.device_count()
print("devices", json.dumps(found))
"""
_TIMEOUT_S = 120
_INTEL = "0x8086"
_NOT_RUN = "pipetune is written for it, and was not run on such hardware"


def count_cuda_devices(wanted: bool) -> tuple[int, str | None]:
    """Devices that a child process would see, ``CUDA_VISIBLE_DEVICES`` applied, and what to know about them.

    AMD's count, too: for torch they are CUDA devices. The remark says why there are fewer devices than GPUs, or that
    pipetune was not run on such ones.

    Args:
        wanted: the user named a CUDA device: torch is asked in any case.
    """
    nvidia = _ask_nvml()
    if nvidia.problem is not None and nvidia.problem.reason == "no_answer":  # torch would wait for the driver as well
        return 0, f"{nvidia.problem.message} ({nvidia.problem.hint})"
    gpus = nvidia.gpus
    amd, intel = amd_driver(), _built_for("xpu") and intel_gpu()
    if not wanted and not gpus and not intel and not (amd and _built_for("hip")):
        return 0, "there is an AMD GPU (/dev/kfd), and this torch is not built for ROCm" if amd else None
    found = _ask_torch()
    count = int(found.get("count", 0))
    if count:
        return count, f"an AMD GPU through ROCm: {_NOT_RUN}" if found.get("hip") else None
    if found.get("xpu"):
        return 0, f"torch sees an Intel GPU, which --device auto does not choose, but --device xpu:0 does: {_NOT_RUN}"
    why = _reason(found, gpus)
    return 0, f"NVML sees {len(gpus)} GPU{'s' * (len(gpus) != 1)}, torch can use none: {why}" if gpus else why


def count_xpu_devices() -> tuple[int, str]:
    """Intel GPUs that a child process would see, and what to know about them."""
    if not _built_for("xpu"):
        return 0, "this torch is not built for XPU: see https://pytorch.org/get-started/locally/"
    found = _ask_torch()
    count = int(found.get("xpu") or 0)
    return count, f"an Intel GPU (XPU): {_NOT_RUN}" if count else str(found.get("why") or "torch finds none")


def amd_driver(dev: str = "/dev") -> bool:
    """Whether AMD's compute driver is loaded."""
    return os.path.exists(f"{dev}/kfd")


def intel_gpu(sys_folder: str = "/sys") -> bool:
    """Whether there is a GPU of Intel's, the one in a processor included."""
    for vendor in Path(sys_folder, "class/drm").glob("renderD*/device/vendor"):
        try:
            if vendor.read_text().strip() == _INTEL:
                return True
        except OSError:
            continue
    return False


def _ask_nvml() -> GpuState:
    """What NVML says. Most machines have no NVML, and need no process that asks it; to load it asks no driver."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return GpuState()
    return ask_gpus()


def _built_for(platform: str) -> bool:
    """Whether the installed torch is built for ``hip`` or ``xpu``, as its own file of versions says."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return False
    try:
        text = Path(spec.origin).with_name("version.py").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return re.search(rf"^{platform}\b[^=\n]*= *['\"]", text, re.MULTILINE) is not None


def _ask_torch() -> dict[str, Any]:
    try:
        asked = subprocess.run(
            [sys.executable, "-P", "-c", _PROGRAM], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return {"why": f"importing it took more than {_TIMEOUT_S} s"}
    answers = [line for line in asked.stdout.splitlines() if line.startswith("devices {")]
    if not answers:
        return {"why": "".join(asked.stderr.strip().splitlines()[-1:]) or f"it ended with exit code {asked.returncode}"}
    found: dict[str, Any] = json.loads(answers[-1].removeprefix("devices "))
    return found


def _reason(found: dict[str, Any], gpus: Sequence[GpuInfo]) -> str:
    """Why torch can use none, with what to change."""
    why = " ".join(str(found.get("why") or "it gives no reason").split())
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if "not compiled with CUDA" in why:
        return "this torch is built for the CPU: see https://pytorch.org/get-started/locally/"
    old = re.search(r"too old \(found version (\d+)\)", why)
    if old is not None:
        return (
            f"the NVIDIA driver is too old, it runs CUDA {_version(int(old[1]))}, and this torch is built for CUDA "
            f"{found.get('built_for')}: update the driver, or install a torch for CUDA {int(old[1]) // 1000}"
        )
    if visible is not None and gpus:
        there = ", ".join(f"{gpu.index}: {gpu.uuid}" for gpu in gpus)
        if visible.strip() in ("", "-1"):
            return f"CUDA_VISIBLE_DEVICES={visible!r} hides them"
        return f"CUDA_VISIBLE_DEVICES={visible!r} begins with none of them ({there}; MIG slices: nvidia-smi -L)"
    return why.partition(". ")[0]


def _version(number: int) -> str:
    """``11080`` -> ``'11.8'``."""
    return f"{number // 1000}.{number % 1000 // 10}"
