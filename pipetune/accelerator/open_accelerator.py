"""Opens an accelerator by its spec. Called in the child only: real accelerators import torch."""

from __future__ import annotations

import contextlib

from pipetune.accelerator.contract import Accelerator
from pipetune.accelerator.timeline import TimelineWriter
from pipetune.records.sweep import Workload


def open_accelerator(workload: Workload) -> Accelerator:
    """The accelerator of the workload, ready for batches."""
    spec = workload.accelerator
    if spec.kind == "emulated":
        from pipetune.accelerator.emulated import EmulatedAccelerator, rate_of_process

        assert spec.rate_samples_per_s is not None  # emulated_spec sets it
        timeline = None
        with contextlib.suppress(OSError):  # a sandbox may forbid it; then the device cannot be watched
            timeline = TimelineWriter()
        return EmulatedAccelerator(
            spec.rate_samples_per_s * rate_of_process(spec.scatter), timeline=timeline,
            launch_s=spec.launch_s, copy_bytes_per_s=spec.copy_bytes_per_s,
        )  # fmt: skip
    if spec.kind == "cpu":
        from pipetune.accelerator.cpu import CpuAccelerator

        return CpuAccelerator(workload.model, workload.precision)
    import torch

    from pipetune.accelerator.torch_accelerator import TorchAccelerator

    device = torch.device(spec.kind, spec.device_index or 0)
    return TorchAccelerator(workload.model, workload.precision, device)
