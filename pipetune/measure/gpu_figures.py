"""What NVML showed of a GPU in the timed phase. Pure."""

from __future__ import annotations

from typing import Any

from pipetune.measure.reading_window import ReadingWindow
from pipetune.measure.recording import Recording
from pipetune.stats.busy_spans import busy_frac_between


def gpu_figures(recording: Recording, span_ns: tuple[int, int]) -> dict[str, Any]:
    """What NVML showed of the recording's GPU, under the names of :class:`Measurement`'s fields; ``None``: nothing."""
    window = ReadingWindow(recording.readings, *span_ns)
    return {
        "sm_active_pct": window.mean(lambda r: r.gpu.sm_active_pct if r.gpu else None),
        "gpu_mem_bytes": window.maximum(lambda r: r.gpu.mem_used_bytes if r.gpu else None),
        "gpu_clock_mhz": window.mean(lambda r: r.gpu.sm_clock_mhz if r.gpu else None),
        "gpu_power_w": window.mean(lambda r: r.gpu.power_w if r.gpu else None),
        "gpu_slowed_pct": window.mean(lambda r: r.gpu.slowed_pct if r.gpu else None),
        "gpu_power_capped_pct": window.mean(lambda r: r.gpu.power_capped_pct if r.gpu else None),
    }


def utilisation_pct(kind: str, recording: Recording, span_ns: tuple[int, int], idle_frac: float) -> float | None:
    """How busy the accelerator was; ``None``: it has nobody who knows.

    Args:
        kind: of accelerator.
        recording: of the rank that had it.
        span_ns: from when to when.
        idle_frac: share of the time in which it had nothing to run, by the steps.
    """
    if kind == "cuda":
        # NVML tells late: what was read in the phase is in part about the time before it.
        busy_frac = busy_frac_between(recording.busy_spans, *span_ns)
        window = ReadingWindow(recording.readings, *span_ns)
        return window.mean(lambda r: r.gpu.util_pct if r.gpu else None) if busy_frac is None else 100 * busy_frac
    return 100 * (1 - idle_frac) if kind == "emulated" else None
