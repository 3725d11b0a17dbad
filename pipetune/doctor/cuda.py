"""Findings about what keeps CUDA programs from the GPUs that NVML shows, or shows them in another order. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from pipetune.doctor.facts import TorchBuild
from pipetune.doctor.findings import NOTE, WARNING, Finding
from pipetune.machine.nvml.gpu_state import GpuState
from pipetune.machine.nvml.visible import GpuUse, visible_places

_ORDER = "PCI_BUS_ID"


def judge_cuda(state: GpuState, torch: TorchBuild | None, environment: Mapping[str, str]) -> Iterator[Finding]:
    """Findings about the driver's CUDA and the environment's variables; none where all is as usual."""
    if not state.gpus:
        return
    built_for = re.fullmatch(r"CUDA (\d+)\.\d+", (torch and torch.platform) or "")
    # From one minor version to the next they go together (CUDA's minor version compatibility).
    if built_for and state.cuda is not None and state.cuda // 1000 < int(built_for[1]):
        runs = f"{state.cuda // 1000}.{state.cuda % 1000 // 10}"
        yield Finding(
            topic="gpu", name="CUDA", state=WARNING,
            value=f"the driver runs CUDA {runs} and older, torch is built for {built_for[0]}: it cannot use the GPU",
            hint=f"update the driver, or install a torch for CUDA {state.cuda // 1000}: https://pytorch.org",
        )  # fmt: skip
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        yield _visible(visible, state)
    if len({gpu.name for gpu in state.gpus if gpu.name}) > 1 and environment.get("CUDA_DEVICE_ORDER") != _ORDER:
        yield Finding(
            topic="gpu", name="order of GPUs", state=NOTE,
            value="of several kinds: cuda:0 is the fastest one, GPU 0 the first on the bus",
            hint=f"set CUDA_DEVICE_ORDER={_ORDER}, and both count alike",
        )  # fmt: skip


def _visible(value: str, state: GpuState) -> Finding:
    uses = [GpuUse(index=gpu.index, uuid=gpu.uuid) for gpu in state.gpus]
    places = visible_places({"CUDA_VISIBLE_DEVICES": value}, uses).places
    name = "CUDA_VISIBLE_DEVICES"
    if places or value.strip().startswith("MIG-"):  # whether there is such a slice is not known here
        return Finding(topic="gpu", name=name, state=NOTE, value=value)
    why = "hides all GPUs" if value.strip() in ("", "-1") else "begins with no GPU that NVML shows"
    there = ", ".join(f"{gpu.index}: {gpu.uuid}" for gpu in state.gpus)
    return Finding(
        topic="gpu", name=name, state=WARNING, value=f"{value!r} {why}", hint=f"unset it, or name one of {there}"
    )
