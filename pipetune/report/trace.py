"""A run as Trace Event JSON, for Perfetto (ui.perfetto.dev) and chrome://tracing. Pure.

Uses complete events (``X``), counters (``C``) and metadata (``M``) of the "Trace Event Format" (Google). Each timeline
is a process, whose rows are the loop's waits, the accelerator's work and its stalls; the stall slices add up to the
stall time of the run. Times are microseconds from the start of the run.

Why no library: there are only three kinds of events, each one JSON object.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any

#: Rows of a process.
_LOOP, _DEVICE, _STALLS = 1, 2, 3
_ROWS = {_LOOP: "training loop", _DEVICE: "accelerator", _STALLS: "stalls"}
#: Counter -> its series: title and column of the readings.
_COUNTERS: dict[str, dict[str, str]] = {
    "CPU (%)": {"busy": "cpu_busy_pct", "iowait": "cpu_iowait_pct"},
    "pressure, PSI some (%)": {"cpu": "psi_cpu_some_pct", "io": "psi_io_some_pct", "memory": "psi_memory_some_pct"},
    "GPU (%)": {"busy": "gpu_util_pct", "SM active": "gpu_sm_active_pct"},
    "GPU power (W)": {"power": "gpu_power_w"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedTimeline:
    """One timeline to be written."""

    name: str
    readings: Mapping[str, Any]
    """Columns as :func:`pipetune.store.columns.load_columns` gives them."""
    steps: Mapping[str, Any]
    stalls: Mapping[str, Sequence[Any]]
    """``t_start_ns``, ``t_end_ns``, ``lost_s`` and ``cause``."""


def trace_lines(timelines: Sequence[TracedTimeline], about: Mapping[str, Any]) -> Iterator[str]:
    """The file's lines.

    Args:
        timelines: in the order in which they are to be shown.
        about: becomes ``otherData``; strings and numbers.
    """
    zero_ns = min((first for timeline in timelines for first in _firsts(timeline)), default=0)
    yield f'{{"displayTimeUnit":"ms","otherData":{json.dumps(dict(about), default=str)},"traceEvents":['
    before = ""
    for number, timeline in enumerate(timelines, start=1):
        for event in _events(number, timeline, zero_ns):
            yield before + json.dumps(event, allow_nan=False, separators=(",", ":"))
            before = ","
    yield "]}"


def _firsts(timeline: TracedTimeline) -> list[int]:
    columns = (timeline.steps["t_start_ns"], timeline.readings["t_ns"], timeline.stalls["t_start_ns"])
    return [int(min(column)) for column in columns if len(column)]


def _events(pid: int, timeline: TracedTimeline, zero_ns: int) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "pid": pid, "tid": 0, "ts": 0, "name": "process_name", "args": {"name": timeline.name}}
    yield {"ph": "M", "pid": pid, "tid": 0, "ts": 0, "name": "process_sort_index", "args": {"sort_index": pid}}
    for tid, name in _ROWS.items():
        yield {"ph": "M", "pid": pid, "tid": tid, "ts": 0, "name": "thread_name", "args": {"name": name}}
    yield from _step_events(pid, timeline.steps, zero_ns)
    stalls = timeline.stalls
    for start_ns, end_ns, lost_s, cause in zip(
        stalls["t_start_ns"], stalls["t_end_ns"], stalls["lost_s"], stalls["cause"], strict=True
    ):
        yield _slice(pid, _STALLS, f"stall: {cause}", int(start_ns) - zero_ns, int(end_ns) - zero_ns, lost_s=lost_s)
    yield from _counter_events(pid, timeline.readings, zero_ns)


def _step_events(pid: int, steps: Mapping[str, Any], zero_ns: int) -> Iterator[dict[str, Any]]:
    names = ("t_start_ns", "data_wait_s", "h2d_s", "compute_s", "t_end_ns", "samples", "others_s")
    rows = zip(*(steps[name].tolist() for name in names), strict=True)
    for number, (asked_ns, wait_s, h2d_s, compute_s, end_ns, samples, others_s) in enumerate(rows):
        asked, end = asked_ns - zero_ns, end_ns - zero_ns
        if not isnan(wait_s):
            yield _slice(pid, _LOOP, "wait for the batch", asked, asked + round(wait_s * 1e9), step=number)
        if isnan(compute_s):
            continue
        if others_s > 0:  # and not NaN, as of an earlier version
            computed = end - round(others_s * 1e9)
            yield _slice(pid, _DEVICE, "wait for other ranks", computed, end, step=number)
            end = computed
        work = end - round(compute_s * 1e9)
        if h2d_s > 0:  # and not NaN
            yield _slice(pid, _DEVICE, "copy to the device", work - round(h2d_s * 1e9), work, step=number)
        yield _slice(pid, _DEVICE, "step", work, end, step=number, samples=None if isnan(samples) else samples)


def _counter_events(pid: int, readings: Mapping[str, Any], zero_ns: int) -> Iterator[dict[str, Any]]:
    times = readings["t_ns"].tolist()
    for title, series in _COUNTERS.items():
        columns = {name: readings[column].tolist() for name, column in series.items()}
        for row, t_ns in enumerate(times):
            values = {name: column[row] for name, column in columns.items() if not isnan(column[row])}
            if values:
                yield {"ph": "C", "pid": pid, "tid": 0, "ts": (t_ns - zero_ns) / 1000, "name": title, "args": values}


def _slice(pid: int, tid: int, name: str, start_ns: int, end_ns: int, **about: Any) -> dict[str, Any]:
    return {
        "ph": "X", "pid": pid, "tid": tid, "ts": start_ns / 1000, "dur": (end_ns - start_ns) / 1000, "name": name,
        "cat": _ROWS[tid], "args": about,
    }  # fmt: skip
