"""Opens an accelerator by its spec. Called in the child only: real accelerators import torch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from pipetune.accelerator.common_steps import CommonSteps, InStep
from pipetune.accelerator.contract import Accelerator
from pipetune.accelerator.device_memory import limit_memory
from pipetune.accelerator.timeline import TimelineWriter
from pipetune.augmentation.recipes import BASIC
from pipetune.records.sweep import Workload

if TYPE_CHECKING:
    import torch


def open_accelerator(
    workload: Workload,
    common: CommonSteps | None = None,
    *,
    augment: str = BASIC,
    classes: int = 1,
    end_stage: Callable[[str], None] = lambda stage: None,
) -> Accelerator:
    """The accelerator of the workload, ready for batches.

    Args:
        augment: what it does to the images of each batch first, of :data:`pipetune.augmentation.recipes.RECIPES`.
        classes: number of classes of the data set.
        common: the steps that it ends together with the accelerators of other ranks.
        end_stage: called at the end of each stage with its name in :class:`pipetune.records.set_up.SetUp`.
    """
    if workload.accelerator.kind == "emulated":
        return _open_emulated(workload, common, augments=augment != BASIC)
    opened = _open_real(workload, augment, classes, end_stage)
    return opened if common is None else InStep(opened, common)


def _open_emulated(workload: Workload, common: CommonSteps | None, *, augments: bool) -> Accelerator:
    from pipetune.accelerator.emulated import EmulatedAccelerator, rate_of_process

    spec = workload.accelerator
    assert spec.rate_samples_per_s is not None  # emulated_spec sets it
    timeline = None
    with contextlib.suppress(OSError):  # a sandbox may forbid it; then the device cannot be watched
        timeline = TimelineWriter()
    return EmulatedAccelerator(
        spec.rate_samples_per_s * rate_of_process(spec.scatter), timeline=timeline,
        launch_s=spec.launch_s, copy_bytes_per_s=spec.copy_bytes_per_s, common=common,
        augment_samples_per_s=spec.augment_samples_per_s if augments else None,
    )  # fmt: skip


def _open_real(workload: Workload, augment: str, classes: int, end_stage: Callable[[str], None]) -> Accelerator:
    import torch

    from pipetune.accelerator.device_transforms import DeviceTransforms

    spec = workload.accelerator
    device = torch.device("cpu") if spec.kind == "cpu" else torch.device(spec.kind, spec.device_index or 0)
    if spec.kind != "cpu":
        _open_context(device)
        end_stage("context_s")
    transforms = DeviceTransforms(augment, workload.seed, classes, device)
    if spec.kind == "cpu":
        from pipetune.accelerator.cpu import CpuAccelerator

        opened: Accelerator = CpuAccelerator(
            workload.model, workload.precision, compiled=workload.compiled, transforms=transforms
        )
        end_stage("model_s")
        return opened
    from pipetune.accelerator.torch_accelerator import TorchAccelerator

    if workload.gpu_memory_limit_bytes is not None:
        limit_memory(spec, workload.gpu_memory_limit_bytes)
    opened = TorchAccelerator(
        workload.model,
        workload.precision,
        device,
        checkpointing=workload.checkpointing,
        compiled=workload.compiled,
        transforms=transforms,
    )
    end_stage("model_s")
    return opened


def _open_context(device: torch.device) -> None:
    """Have the driver make the device's context and give out its first memory, which takes from 0.1 s to seconds."""
    import torch

    torch.zeros(1, device=device)
    torch.get_device_module(device).synchronize(device)
