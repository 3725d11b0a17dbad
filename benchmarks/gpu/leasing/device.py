"""The device that a lease measures: asked in another process, so that this one never hangs with a driver."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass

from pipetune.accelerator.cuda_devices import count_cuda_devices
from pipetune.machine.nvml.gpu_state import ask_gpus

#: Longest time until torch has found the device, and until NVML answers (s).
_LIMIT_S, _ANSWER_S = 60.0, 15.0
_PROGRAM = """
import json, sys, torch
from pipetune.machine.nvml.gpu import NvmlUnavailable, open_gpu
properties = torch.cuda.get_device_properties(int(sys.argv[1]))
driver = None
try:
    gpu = open_gpu(uuid=str(properties.uuid))
    driver = gpu.driver_version
    gpu.close()
except NvmlUnavailable:
    pass
print(json.dumps({"name": properties.name, "driver": driver, "uuid": str(properties.uuid)}))
"""


@dataclass(frozen=True, slots=True)
class Device:
    """What results are compared by: those of another device count as another's."""

    name: str
    driver: str | None
    uuid: str | None
    """As torch gives it; ``None``: the device is emulated."""
    slug: str
    """Name of the device's folder, e.g. ``nvidia-h100-80gb-hbm3``."""


def why_lost() -> str | None:
    """Why no GPU can be measured any more, e.g. after a crash of the driver; ``None``: nothing speaks against it."""
    state = ask_gpus(_ANSWER_S)
    if state.problem is not None and state.problem.reason == "no_answer":
        return state.problem.message
    return next((gpu.problem for gpu in state.gpus if gpu.problem is not None), None)


class NoDevice(Exception):
    """There is no such device; the text says why."""


def find_device(text: str) -> Device:
    """``cuda:N`` or ``emulated`` -> the device.

    Raises:
        NoDevice: it is neither, or there is no such CUDA device.
    """
    if text == "emulated":
        return Device(text, None, None, text)
    if not re.fullmatch(r"cuda(:\d+)?", text):
        raise NoDevice(f"--device must be cuda:N or emulated (got {text!r})")
    index = text.partition(":")[2] or "0"
    process = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, index],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        said, complaint = process.communicate(timeout=_LIMIT_S)
    except subprocess.TimeoutExpired:
        raise NoDevice(f"no CUDA device answers within {_LIMIT_S:.0f} s: does nvidia-smi?") from None
    finally:
        if process.poll() is None:
            process.kill()  # and not waited for: in a driver that hangs it cannot be killed
    try:
        answer = json.loads(said.splitlines()[-1])
    except (IndexError, ValueError):
        count, reason = count_cuda_devices(wanted=True)
        why = reason or (complaint.strip().splitlines() or ["torch says nothing"])[-1]
        raise NoDevice(f"no CUDA device {text} ({count} are there: {why}); try --device emulated") from None
    slug = re.sub(r"[^a-z0-9]+", "-", answer["name"].lower()).strip("-")
    return Device(answer["name"], answer["driver"], answer["uuid"], slug or "gpu")
