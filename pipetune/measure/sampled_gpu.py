"""The GPU that a sampler reads during one measurement."""

from __future__ import annotations

from pipetune.machine.nvml.gpu import Gpu, NvmlUnavailable
from pipetune.machine.nvml.held import HeldGpus
from pipetune.machine.nvml.in_time import open_gpu_in_time
from pipetune.measure.recording import Recording


def open_sampled_gpu(uuid: str | None, gpus: HeldGpus | None, recording: Recording) -> Gpu | None:
    """A GPU for one measurement; ``None``: NVML does not give it, which the recording's notes say once.

    Args:
        gpus: those that the series of measurements holds open; ``None``: it is opened for this measurement.
    """
    try:
        return open_gpu_in_time(uuid) if gpus is None else gpus.open(uuid)
    except NvmlUnavailable as error:
        if (note := f"no GPU readings: {error}") not in recording.notes:
            recording.notes.append(note)
        return None
