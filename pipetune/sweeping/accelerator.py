"""The accelerator that the options of a sweep name, and what to know of it and of its ranks."""

from __future__ import annotations

import os

from pipetune.accelerator.compiler import require_compiler
from pipetune.accelerator.cuda_devices import count_cuda_devices, count_xpu_devices
from pipetune.accelerator.model_names import require_model
from pipetune.accelerator.parse_device import parse_device
from pipetune.errors import UsageError
from pipetune.records.sweep import AcceleratorSpec
from pipetune.sweeping.options import SweepOptions, require
from pipetune.usercode import make_loader

#: Model whose published rates the named emulated accelerators carry.
_NAMED_MODEL = "resnet50"


def find_accelerator(chosen: SweepOptions) -> tuple[AcceleratorSpec, int, tuple[str, ...]]:
    """The accelerator, how many of its kind share the cores, and what to say of it.

    That an emulated one takes a GPU's place, that it is of an untested kind, or that there are several.

    Raises:
        UsageError: there is no such device, or the model or the metric does not work with it.
        PipetuneError: ``--compile`` lacks a compiler.
    """
    kind = chosen.device.strip().partition(":")[0]
    devices, remark = _count_devices(kind)
    accelerator = parse_device(chosen.device, devices, remark)
    if accelerator.kind != "emulated":
        require("torchvision")
    if accelerator.source is not None and chosen.model != _NAMED_MODEL:
        raise UsageError(
            f"{accelerator.name} has a published rate for {_NAMED_MODEL} only, not for --model {chosen.model}",
            hint="name the rate yourself, e.g. --device emulated:800",
        )
    if chosen.compile and accelerator.kind == "emulated":
        raise UsageError(
            f"--compile needs a device that trains the model (got {accelerator.name})",
            hint="name the rate of the compiled model: --device emulated:RATE",
        )
    if chosen.compile:
        require_compiler(accelerator.kind, os.environ)
    require_model(chosen.model)
    if chosen.target_metric == "nvml" and accelerator.kind != "cuda":
        raise UsageError(
            f"--target-metric nvml needs a GPU, not {accelerator.name}", hint="use --target-metric goodput"
        )
    if remark is not None and accelerator.kind == "emulated":
        remark += ": an emulated accelerator takes its place; --device cpu trains on the processor"
    remarks = [] if remark is None else [remark]
    sharing = max(1, devices) if accelerator.device_index is not None else 1
    return accelerator, sharing, tuple(remarks)


def describe_ranks(chosen: SweepOptions, ranks: int, devices: int, kind: str) -> list[str]:
    """What to know of the ranks that are measured, and of those that are not."""
    found = []
    if ranks > 1:
        waits = "each step ends when all have computed it" if chosen.sync == "step" else "none waits for another"
        found.append(
            f"{ranks} ranks are measured at the same time, each with an accelerator and a loader of its own, and "
            f"{waits}: workers are those of each rank; rates, cores and memory are those of all; goodput is the "
            "slowest rank's"
        )
    if chosen.hosts > 1:
        found.append(
            f"{chosen.hosts} hosts measure each candidate at the same time, each with its part of the images; all that "
            "is stated is the slowest host's, unless it says otherwise; steps of one host do not wait for another's"
        )
    if ranks > 1 and chosen.dataset.startswith(make_loader.SCHEME):
        found.append(
            "each rank reads what your loader gives it: RANK and WORLD_SIZE in its environment say which part is meant"
        )
    if devices > ranks:
        alone = "one of them alone" if ranks == 1 else f"{ranks} of them alone"
        fewer = "" if chosen.workers is not None else "; worker counts go up to a rank's share of the cores among all"
        found.append(
            f"this process sees {devices} GPUs, and what is measured holds for a training on {alone}: the load of the "
            f"others is missing{fewer}; --device {kind} --ranks auto measures all of them"
        )
    return found


def _count_devices(kind: str) -> tuple[int, str | None]:
    """Number of devices of the kind that was written for ``--device``, and what to know about them."""
    if kind == "xpu":
        return count_xpu_devices()
    return count_cuda_devices(wanted=kind == "cuda") if kind in ("auto", "cuda") else (0, None)
