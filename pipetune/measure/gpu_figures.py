"""What NVML showed of a GPU in the timed phase. Pure."""

from __future__ import annotations

import math
from typing import Any

from pipetune.measure.gpu_energy import find_mean_power
from pipetune.measure.reading_window import ReadingWindow
from pipetune.measure.recording import Recording
from pipetune.stats.busy_spans import busy_frac_between
from pipetune.stats.intervals import Interval


def gpu_figures(recording: Recording, span_ns: tuple[int, int], rate: float, ci95: Interval) -> dict[str, Any]:
    """What NVML showed of the recording's GPU, under the names of :class:`Measurement`'s fields; ``None``: nothing.

    Args:
        rate: of all ranks together (samples/s), with its 95 % confidence interval.
    """
    window = ReadingWindow(recording.readings, *span_ns)
    power = find_mean_power(recording.readings, span_ns)
    power_w = window.settled_mean(lambda r: r.gpu.power_w if r.gpu else None) if power is None else power.watts
    energy_j = None if power is None else 1000 * power.watts / rate
    half = 0.0 if power is None else math.hypot(power.error_frac, (ci95[1] - ci95[0]) / 2 / rate)
    return {
        "sm_active_pct": window.settled_mean(lambda r: r.gpu.sm_active_pct if r.gpu else None),
        "gpu_mem_bytes": window.maximum(lambda r: r.gpu.mem_used_bytes if r.gpu else None),
        "gpu_clock_mhz": window.mean(lambda r: r.gpu.sm_clock_mhz if r.gpu else None),
        "gpu_power_w": power_w,
        "gpu_slowed_pct": window.settled_mean(lambda r: r.gpu.slowed_pct if r.gpu else None),
        "gpu_power_capped_pct": window.settled_mean(lambda r: r.gpu.power_capped_pct if r.gpu else None),
        "jpeg_util_pct": window.settled_mean(lambda r: r.gpu.jpeg_util_pct if r.gpu else None),
        "pcie_rx_bytes_per_s": window.amount_per_s(lambda r: r.gpu.pcie_rx_bytes if r.gpu else None),
        "pcie_tx_bytes_per_s": window.amount_per_s(lambda r: r.gpu.pcie_tx_bytes if r.gpu else None),
        "energy_j_per_1000_samples": energy_j,
        "energy_ci95": None if energy_j is None else (energy_j * max(0.0, 1 - half), energy_j * (1 + half)),
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
