"""Opens an accelerator by its spec. Called in the child only: real accelerators import torch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from pipetune.accelerator.common_steps import CommonSteps, InStep
from pipetune.accelerator.contract import Accelerator
from pipetune.accelerator.device_memory import limit_memory
from pipetune.accelerator.timeline import TimelineWriter
from pipetune.records.sweep import Workload


def open_accelerator(
    workload: Workload, common: CommonSteps | None = None, end_stage: Callable[[str], None] = lambda stage: None
) -> Accelerator:
    """The accelerator of the workload, ready for batches.

    Args:
        common: the steps that it ends together with the accelerators of other ranks.
        end_stage: called at the end of each stage with its name in :class:`pipetune.records.set_up.SetUp`.
    """
    if workload.accelerator.kind == "emulated":
        return _open_emulated(workload, common)
    opened = _open_real(workload, end_stage)
    return opened if common is None else InStep(opened, common)


def _open_emulated(workload: Workload, common: CommonSteps | None) -> Accelerator:
    from pipetune.accelerator.emulated import EmulatedAccelerator, rate_of_process

    spec = workload.accelerator
    assert spec.rate_samples_per_s is not None  # emulated_spec sets it
    timeline = None
    with contextlib.suppress(OSError):  # a sandbox may forbid it; then the device cannot be watched
        timeline = TimelineWriter()
    return EmulatedAccelerator(
        spec.rate_samples_per_s * rate_of_process(spec.scatter), timeline=timeline,
        launch_s=spec.launch_s, copy_bytes_per_s=spec.copy_bytes_per_s, common=common,
    )  # fmt: skip


def _open_real(workload: Workload, end_stage: Callable[[str], None]) -> Accelerator:
    spec = workload.accelerator
    if spec.kind == "cpu":
        from pipetune.accelerator.cpu import CpuAccelerator

        opened: Accelerator = CpuAccelerator(workload.model, workload.precision, compiled=workload.compiled)
        end_stage("model_s")
        return opened
    import torch

    from pipetune.accelerator.torch_accelerator import TorchAccelerator, open_context

    device = torch.device(spec.kind, spec.device_index or 0)
    open_context(device)
    end_stage("context_s")
    if workload.gpu_memory_limit_bytes is not None:
        limit_memory(spec, workload.gpu_memory_limit_bytes)
    opened = TorchAccelerator(
        workload.model,
        workload.precision,
        device,
        checkpointing=workload.checkpointing,
        compiled=workload.compiled,
    )
    end_stage("model_s")
    return opened
