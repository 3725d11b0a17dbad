"""The GPUs and their driver, asked for by a process of its own: a driver that hangs must not hang us.

Why no thread: a call that hangs in the driver cannot be interrupted (state D). A process counts as ended only when its
last thread has, so a thread of ours would keep the shell waiting for pipetune after everything has been printed.
Another process is left behind instead, and ends when the driver lets it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipetune.machine.nvml.gpu import GpuInfo, NvmlUnavailable, list_gpus, open_gpu
from pipetune.records.convert import to_dict

#: NVML takes up to two seconds to start on a machine with many GPUs, and is started twice.
_LIMIT_S = 10.0
#: The argument is the folder of this package: last on the path, where the standard library comes first.
_PROGRAM = (
    "import sys; sys.path.append(sys.argv.pop()); from pipetune.machine.nvml.gpu_state import answer; print(answer())"
)
_PACKAGE_FOLDER = str(Path(__file__).resolve().parents[3])
#: Begins the line with the answer; the driver's library may print others.
_MARK = "gpus "


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuState:
    """GPUs and driver as NVML reports them, or why it reports nothing."""

    gpus: tuple[GpuInfo, ...] = ()
    driver: str | None = None
    cuda: int | None = None
    """The newest CUDA that the driver runs: 13000 for 13.0."""
    problem: NvmlUnavailable | None = None


def ask_gpus(limit_s: float = _LIMIT_S) -> GpuState:
    """As :func:`describe_gpus`, and no answer within ``limit_s`` is a reason, too. Never fails."""
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", _PROGRAM, _PACKAGE_FOLDER], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, errors="replace",
        )  # fmt: skip
    except OSError as error:
        return _unknown(f"no process that asks NVML can be started: {error.strerror}")
    try:
        said, complaint = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        return _unknown(
            f"NVML did not answer within {limit_s:g} s",
            "run nvidia-smi; where that hangs, too, reset the GPU's driver or reboot the machine",
            reason="no_answer",
        )
    finally:
        if process.poll() is None:
            process.kill()  # and not waited for: in the driver it cannot be killed
    found = next((line for line in said.splitlines() if line.startswith(_MARK)), None)
    if found is None:
        last = (complaint.strip().splitlines() or ["it printed nothing"])[-1]
        return _unknown(f"the process that asks NVML ended with {process.returncode}: {last}")
    return _state(json.loads(found.removeprefix(_MARK)))


def describe_gpus() -> GpuState:
    """The GPUs and the driver as NVML reports them; the reason for no answer is part of the state."""
    try:
        gpus = list_gpus()
    except NvmlUnavailable as error:
        return GpuState(problem=error)
    for info in gpus:
        try:
            gpu = open_gpu(index=info.index)
        except NvmlUnavailable:  # this GPU is lost; another one knows the driver's version, too
            continue
        gpu.close()
        return GpuState(gpus=gpus, driver=gpu.driver_version, cuda=gpu.cuda_version)
    return GpuState(gpus=gpus)


def answer() -> str:
    """The line that the process prints."""
    state = describe_gpus()
    problem = state.problem
    return _MARK + json.dumps({
        "gpus": [to_dict(gpu) for gpu in state.gpus], "driver": state.driver, "cuda": state.cuda,
        "problem": problem and {"message": problem.message, "reason": problem.reason, "hint": problem.hint},
    })  # fmt: skip


def _state(found: dict[str, Any]) -> GpuState:
    problem = found["problem"]
    return GpuState(
        gpus=tuple(GpuInfo(**gpu) for gpu in found["gpus"]), driver=found["driver"], cuda=found["cuda"],
        problem=problem and NvmlUnavailable(problem["message"], reason=problem["reason"], hint=problem["hint"]),
    )  # fmt: skip


def _unknown(message: str, hint: str = "run nvidia-smi for details", reason: str = "nvml_error") -> GpuState:
    return GpuState(problem=NvmlUnavailable(message, reason=reason, hint=hint))
