"""What NVML showed of a GPU in the timed phase. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import fmean
from typing import Any

from pipetune.measure.gpu_energy import find_mean_power
from pipetune.measure.reading_window import ReadingWindow
from pipetune.measure.recording import Recording
from pipetune.stats.busy_spans import busy_frac_within, spans_within
from pipetune.stats.intervals import Interval

#: Batches that the values of the utilisation are cut into, for an interval.
_UTIL_BATCHES = 10
#: Begins the warning that NVML tells nothing of the timed phase.
NO_UTILISATION = "no GPU utilisation: "


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
        # NVML tells late: what was read in the phase is in part about the time before it, which may be the warm-up.
        busy_frac = busy_frac_within(recording.busy_spans, *span_ns)
        return None if busy_frac is None else 100 * busy_frac
    return 100 * (1 - idle_frac) if kind == "emulated" else None


def explain_unknown_utilisation(recording: Recording, window: ReadingWindow) -> Iterator[str]:
    """Why NVML, which tells a utilisation, tells none of the timed phase."""
    if any(r.gpu is not None and r.gpu.util_pct is not None for r in recording.readings):
        spans = spans_within(recording.busy_spans, window.began_ns, window.ended_ns)
        known_s = sum(span.t_end_ns - span.t_start_ns for span in spans) / 1e9
        yield (
            f"{NO_UTILISATION}NVML's values come up to a second late, and those that are about nothing but the timed "
            f"phase cover {known_s:.1f} of its {(window.ended_ns - window.began_ns) / 1e9:.1f} s; measure longer with "
            "--seconds"
        )


def nvml_batches(recording: Recording, window: ReadingWindow) -> list[float]:
    """NVML's values (%) in ten batches, because neighbours resemble each other; of fewer values one."""
    spans = spans_within(recording.busy_spans, window.began_ns, window.ended_ns)
    values = [100 * span.busy_frac for span in spans]
    size = len(values) // _UTIL_BATCHES
    return [fmean(values[n * size : (n + 1) * size]) for n in range(_UTIL_BATCHES)] if size else values[:1]
