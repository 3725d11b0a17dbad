"""How many CUDA devices torch can use here, asked without importing torch into this process."""

from __future__ import annotations

import subprocess
import sys

from pipetune.sampler.nvml import NvmlUnavailable, list_gpus

_QUESTION = "import torch; print('devices', torch.cuda.device_count() if torch.cuda.is_available() else 0)"
_PATIENCE_S = 120


def count_cuda_devices() -> int:
    """Devices of torch in a process like the children: ``CUDA_VISIBLE_DEVICES`` and torch's own build applied.

    NVML is asked first, because importing torch takes seconds and most machines without a GPU have no driver either.
    """
    try:
        if not list_gpus():
            return 0
    except NvmlUnavailable:
        return 0
    try:
        asked = subprocess.run(
            [sys.executable, "-c", _QUESTION], capture_output=True, text=True, timeout=_PATIENCE_S, check=False
        )
    except subprocess.TimeoutExpired:
        return 0
    words = asked.stdout.split()
    return int(words[-1]) if asked.returncode == 0 and len(words) >= 2 and words[-1].isdecimal() else 0
