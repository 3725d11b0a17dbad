"""Number of CUDA devices that torch can use, counted in another process so that this one does not import torch."""

from __future__ import annotations

import subprocess
import sys

from pipetune.machine.nvml.gpu import NvmlUnavailable, list_gpus

_PROGRAM = "import torch; print('devices', torch.cuda.device_count() if torch.cuda.is_available() else 0)"
_TIMEOUT_S = 120


def count_cuda_devices(wanted: bool) -> tuple[int, str | None]:
    """Devices that a child process would see, ``CUDA_VISIBLE_DEVICES`` applied, and why they are fewer than NVML's.

    Args:
        wanted: the user named a CUDA device. Otherwise torch is imported only where NVML lists a GPU: that takes
            seconds, and most machines without a GPU have no driver either.
    """
    try:
        gpus = len(list_gpus())
    except NvmlUnavailable:
        gpus = 0
    if not gpus and not wanted:
        return 0, None
    try:
        asked = subprocess.run(
            [sys.executable, "-P", "-c", _PROGRAM], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
        answer, words = asked.stderr.strip().splitlines()[-1:], asked.stdout.split()
    except subprocess.TimeoutExpired:
        answer, words = [f"importing it took more than {_TIMEOUT_S} s"], []
    count = int(words[-1]) if len(words) >= 2 and words[-1].isdecimal() else 0
    if count or not gpus:
        return count, None
    reason = f" ({answer[0]})" if answer else " (is it a build for the CPU, or for a newer driver?)"
    return 0, f"NVML sees {gpus} GPU{'s' * (gpus != 1)}, torch can use none{reason}"
