"""AcceleratorSpec: what consumes the batches of a sweep. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceleratorSpec:
    """What consumes the batches."""

    kind: str
    """``cuda``, ``xpu``, ``cpu`` or ``emulated``."""
    name: str
    """The device's name as a person knows it; an emulated one's begins with ``EMULATED``."""
    device_index: int | None = None
    """As torch counts CUDA devices or XPUs; ``None`` for the other kinds."""
    rate_samples_per_s: float | None = None
    """Samples per second that an emulated accelerator consumes; ``None`` for real ones."""
    source: str | None = None
    """Where an emulated accelerator's rate was published."""
    launch_s: float = 0.0
    """CPU time (s) that launching a step of an emulated accelerator takes in the training process; 0: none."""
    copy_bytes_per_s: float | None = None
    """Rate at which batches are copied to an emulated accelerator (bytes/s); ``None``: they are there at once."""
    scatter: float = 0.0
    """Relative standard deviation of an emulated accelerator's rate between processes."""
    augment_samples_per_s: float | None = None
    """Rate at which an emulated accelerator augments images (samples/s); ``None``: it is not known, and so an emulated
    accelerator augments none."""

    @property
    def cuda_index(self) -> int | None:
        """Index of the CUDA device; ``None``: it is another accelerator."""
        return self.device_index if self.kind == "cuda" else None
