"""The max ingestion rate with several batch sizes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCeiling:
    """What the accelerator takes with one batch size when batches are always ready."""

    batch_size: int
    """Samples per batch."""
    samples_per_s: float | None
    """Max ingestion rate; ``None``: it was not measured."""
    ci95: tuple[float, float] | None
    """95 % confidence interval of ``samples_per_s``."""
    gain: float | None = None
    """``samples_per_s`` / the rate with the candidates' batch size; ``None``: this is that batch size, or one of
    the two was not measured."""
    gain_ci95: tuple[float, float] | None = None
    """95 % confidence interval of ``gain``. Its lower end above 1: larger batches make the accelerator faster."""
    gpu_mem_bytes: int | None = None
    """Most memory in use on the GPU; ``None``: the accelerator has none of its own."""
    failure: str | None = None
    """Why it was not measured, e.g. because the batch does not fit into the GPU's memory."""

    @property
    def is_faster(self) -> bool:
        """Whether the accelerator takes more samples than with the candidates' batch size, beyond the intervals."""
        return self.gain_ci95 is not None and self.gain_ci95[0] > 1.0
