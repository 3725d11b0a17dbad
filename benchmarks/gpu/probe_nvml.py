"""Of stage ``probe``: what NVML and pipetune's reading of it say while work comes and goes.

Another process plays a square wave of work (:mod:`benchmarks.gpu.square_wave`). Beside it pipetune's own reading is
taken as its sampler takes it, and NVML's lists of processes once. The lag is the shift at which the utilisation fits
the wave best.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from statistics import fmean
from typing import Any

from benchmarks.gpu.commands import NotDone, run_program
from benchmarks.gpu.leasing.findings import Findings
from pipetune.machine.nvml.gpu import Gpu, NvmlUnavailable, open_gpu
from pipetune.machine.nvml.processes import gpus_of_process, list_gpu_uses

#: Length of the wave, its period, and the time between two readings (s).
WAVE_S, PERIOD_S, INTERVAL_S = 12.0, 1.0, 0.1
#: The program's start: torch and CUDA (s).
_START_S = 15.0
#: Shifts that are tried (s), and a correlation from which the utilisation follows the work.
_MAX_LAG_S, _LAG_STEP_S, _FOLLOWS = 2.0, 0.02, 0.5


def record_square_wave(findings: Findings) -> None:
    """Play the wave, read beside it, and keep readings, edges, lag, cost of the calls and lists of processes."""
    try:
        gpu = open_gpu(index=findings.index)
    except NvmlUnavailable as error:
        findings.report_unproven("NVML beside a square wave of work", str(error))
        return
    with contextlib.closing(gpu):
        play_and_read(findings, gpu)
    edges, readings = findings.numbers.get("edges", []), findings.numbers.get("readings", [])
    lag = find_lag(edges, [(row["t_ns"], row["util_pct"]) for row in readings if row["util_pct"] is not None])
    findings.keep("utilisation", lag)
    if lag is None or lag["correlation"] < _FOLLOWS:
        findings.report_unproven("NVML's utilisation follows the work", f"it does not fit the wave at any lag: {lag}")
    else:
        findings.say(
            f"utilisation: new {lag['updates_per_s']:.1f} times a second, {lag['lag_s']:.2f} s late "
            f"(correlation {lag['correlation']:.2f})"
        )
    if (drift := findings.numbers.get("drift")) is not None:
        findings.say(f"the device's clock drifts by {drift['ppm']:.0f} ppm in {drift['host_s']:.1f} s")


def play_and_read(findings: Findings, gpu: Gpu) -> None:
    """Read until the wave has ended."""
    edges: list[dict[str, Any]] = []
    ended = threading.Event()

    def take(found: dict[str, Any]) -> None:
        if found.pop("kind") == "drift":
            findings.keep("drift", found)
        else:
            edges.append(found)

    readings: list[dict[str, Any]] = []
    reader = threading.Thread(target=read_until, args=(gpu, ended, readings, edges, findings), daemon=True)
    reader.start()
    try:
        wave_s = min(WAVE_S, 0.25 * findings.cap_s)
        run_program(
            findings,
            "benchmarks.gpu.square_wave",
            findings.device,
            f"{wave_s:.1f}",
            f"{PERIOD_S}",
            limit_s=_START_S + wave_s,
            on_line=take,
        )
    except NotDone as error:
        findings.report_unproven("NVML beside a square wave of work", str(error))
    finally:
        ended.set()
        reader.join(timeout=5)
    findings.keep("edges", edges)
    findings.keep("readings", readings)
    costs = {
        name: {"calls": count, "mean_us": 1e6 * cost_s / count}
        for name, (count, cost_s) in gpu.call_cost_s().items()
        if count
    }
    findings.keep("nvml_calls", {"costs": costs, "unsupported": sorted(gpu.unsupported), "lost": gpu.lost})


def read_until(
    gpu: Gpu, ended: threading.Event, readings: list[dict[str, Any]], edges: Sequence[Any], findings: Findings
) -> None:
    """Read at the sampler's pace; once, while the device works, which processes NVML sees."""
    listed = False
    while not ended.wait(INTERVAL_S):
        readings.append({"t_ns": time.monotonic_ns(), **asdict(gpu.read())})
        if not listed and len(edges) > 2:
            listed = True
            findings.keep("processes", describe_processes(gpu))


def describe_processes(gpu: Gpu) -> dict[str, Any]:
    """What NVML says of processes: their numbers are the host's, which may not be ours."""
    began = time.perf_counter()
    fracs = gpu.process_fracs()
    took_s = time.perf_counter() - began
    try:
        uses = list_gpu_uses()
    except NvmlUnavailable as error:
        return {"problem": str(error)}
    matches = {str(pid): asdict(gpus_of_process(pid, uses)) for use in uses for pid in (use.pids or ())[:8]}
    return {
        "fracs": None if fracs is None else {str(pid): frac for pid, frac in fracs.items()},
        "fracs_took_s": took_s,
        "uses": [{"index": use.index, "pids": use.pids, "slices": len(use.slices)} for use in uses],
        "matches": matches,
    }


def find_lag(edges: Sequence[dict[str, Any]], values: Sequence[tuple[int, float]]) -> dict[str, float] | None:
    """How late a series follows the wave.

    Args:
        edges: with ``monotonic_ns`` and ``busy``, in their order.
        values: time (ns of the same clock) and utilisation (%).

    Returns:
        ``lag_s``: the shift of the best correlation; ``correlation``: Pearson's at that shift; ``updates_per_s``: how
        often the value was another one. ``None``: too few values, or all of them equal.
    """
    if len(edges) < 4 or len(values) < 8 or len({value for _, value in values}) == 1:
        return None
    best = max(
        ((correlate(edges, values, step * _LAG_STEP_S), step) for step in range(round(_MAX_LAG_S / _LAG_STEP_S) + 1)),
        default=(0.0, 0),
    )
    changes = sum(before[1] != after[1] for before, after in itertools.pairwise(values))
    span_s = (values[-1][0] - values[0][0]) / 1e9
    return {"lag_s": best[1] * _LAG_STEP_S, "correlation": best[0], "updates_per_s": changes / span_s}


def correlate(edges: Sequence[dict[str, Any]], values: Sequence[tuple[int, float]], lag_s: float) -> float:
    """Pearson's correlation of the values with the wave so much earlier; 0 where one of them does not change."""
    low, high = edges[0]["monotonic_ns"], edges[-1]["monotonic_ns"]
    pairs = [
        (value, float(_is_busy(edges, t_ns - 1e9 * lag_s)))
        for t_ns, value in values
        if low <= t_ns - 1e9 * lag_s <= high
    ]
    if len(pairs) < 8:
        return 0.0
    mean_x, mean_y = fmean(x for x, _ in pairs), fmean(y for _, y in pairs)
    xx, yy = sum((x - mean_x) ** 2 for x, _ in pairs), sum((y - mean_y) ** 2 for _, y in pairs)
    xy = sum((x - mean_x) * (y - mean_y) for x, y in pairs)
    return 0.0 if xx == 0 or yy == 0 else float(xy / (xx * yy) ** 0.5)


def _is_busy(edges: Sequence[dict[str, Any]], t_ns: float) -> bool:
    passed = [edge for edge in edges if edge["monotonic_ns"] <= t_ns]
    return bool(passed and passed[-1]["busy"])
