"""What other tools' rules state of the same job, from what those tools would have recorded of it.

SageMaker Debugger (awslabs/sagemaker-debugger at 31d3641, ``smdebug/profiler/analysis/rules``) takes a point every
500 ms: each GPU's and each core's utilisation, and each core's iowait.

- IOBottleneck: some GPU below 10 and some core's iowait above 50, at more than 50 % of the points.
- CPUBottleneck: some GPU below 10 and some core above 90, at more than 50 % of the points.
- BatchSize: 95th percentile of the mean of all cores below 70 and of a GPU, and of its memory, below 70.
- LowGPUUtilization: 95th percentile of a GPU below 70, or above 70 with the 5th below 10.

It waits for 1000 points (8 minutes) first, and BatchSize for 500; here the window of the job must suffice. An emulated
accelerator has no memory, which counts as below 70. Where there is no accelerator, one is assumed that works whenever
no batch is waited for.

xprof, once the TensorFlow profiler (openxla/xprof at a27d00a, ``op_stats_to_input_pipeline_analysis.cc``), learns from
the framework where the time of each step goes, and gets the exact times here: input-bound from 5 % of waiting for input
with an idle device on (HIGHLY from 20 %), and from 3 % of other idle time on that time is reported, too (kernel launch,
collectives, "All Others" as I/O or Python).

An outcome is judged in the tool's favour: it is right if one of its statements can mean an accepted cause (see
:data:`MEANS`; "input-bound" means any of the loader's causes, a busy core any that works on the CPU), or if it makes
none about a healthy job. It is wrong if all of its statements mean something else, or if it makes one about a healthy
job. It is silent if it states nothing about a job that loses time, or only that the GPU is little used, which names no
cause.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from pipetune.accelerator.timeline import DeviceEntry, TimelineReader, busy_between, find_timeline
from pipetune.diagnosis import causes
from pipetune.machine.proc import tree_pids

INTERVAL_S = 0.5
RIGHT, WRONG, SILENT = "right", "wrong", "silent"
_LOADER = frozenset({
    causes.CPU_DECODE, causes.CPU_STARVED, causes.DISK, causes.NETWORK, causes.NO_WORKERS, causes.WORKER_START,
})  # fmt: skip
#: Statement -> causes that it can mean; none: it states that something is wrong, not what.
MEANS: dict[str, frozenset[str]] = {
    "IOBottleneck": frozenset({causes.DISK, causes.NETWORK, causes.CHECKPOINT}),
    "CPUBottleneck": frozenset({
        causes.CPU_DECODE, causes.CPU_STARVED, causes.NO_WORKERS, causes.WORKER_START, causes.MAIN_PYTHON,
    }),
    "BatchSize": frozenset({causes.SMALL_BATCH}),
    "LowGPUUtilization": frozenset(),
    "HIGHLY input-bound": _LOADER | {causes.H2D_COPY},
    "MODERATELY input-bound": _LOADER | {causes.H2D_COPY},
    "other time": frozenset({
        causes.MAIN_PYTHON, causes.SMALL_BATCH, causes.COMMUNICATION, causes.CHECKPOINT, causes.H2D_COPY,
    }),
}  # fmt: skip


@dataclass(slots=True)
class Seen:
    """What the tools would have recorded of a job."""

    gpu_pct: list[list[float]] = field(default_factory=list)
    """Per GPU, a value per point."""
    core_pct: list[list[float]] = field(default_factory=list)
    """Per point, a value per core."""
    iowait_pct: list[list[float]] = field(default_factory=list)
    input_frac: float = 0.0
    """Share of the time that the rank that waits most waits for input while its device is idle."""
    other_frac: float = 0.0
    """Share of the time that the same rank's device is idle and no input is waited for."""


class Observer:
    """Reads the machine's cores and the job's devices while it is open; ``seen`` holds the result afterwards.

    Args:
        pid: the job's first process.
        steps: reads the job's record so far: for each rank, when batches were asked for and arrived (ns).
    """

    def __init__(self, pid: int, steps: Callable[[], list[list[tuple[int, int]]]]) -> None:
        self._readers = _open_timelines(pid)
        self._steps = steps
        self._points: list[tuple[int, list[list[int]]]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self.seen = Seen()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()
        if kind is None:
            self._sum_up()
        for reader in self._readers:
            reader.close()

    def _read(self) -> None:
        while True:
            self._points.append((time.monotonic_ns(), read_cores()))
            if self._over.wait(INTERVAL_S):
                return

    def _sum_up(self) -> None:
        spans = [(a[0], b[0]) for a, b in zip(self._points, self._points[1:], strict=False)]
        began_ns, ended_ns = spans[0][0], spans[-1][1]
        for before, after in zip(self._points, self._points[1:], strict=False):
            grown = np.array(after[1]) - np.array(before[1])
            total = np.maximum(1, grown.sum(axis=1))
            idle, iowait = grown[:, 3], grown[:, 4]
            self.seen.core_pct.append(list(100 * (1 - (idle + iowait) / total)))
            self.seen.iowait_pct.append(list(100 * iowait / total))
        waits = [_within(rank, began_ns, ended_ns) for rank in self._steps()]
        busy = [[(e.t_start_ns, e.t_end_ns) for e in reader.entries(began_ns)] for reader in self._readers]
        busy = [_within(rank, began_ns, ended_ns) for rank in busy] or [
            _rest(rank, began_ns, ended_ns) for rank in waits
        ]
        for rank in busy:
            entries = [DeviceEntry(start, end, end - start) for start, end in rank]
            self.seen.gpu_pct.append([100 * busy_between(entries, *span)[0] for span in spans])
        whole = ended_ns - began_ns
        # Which device belongs to which file of steps is not known: the rank that waits most for input counts.
        for waited, worked in zip(waits, busy, strict=False):
            input_frac = (_length(waited) - _length(_common(waited, worked))) / whole
            if input_frac >= self.seen.input_frac:
                self.seen.input_frac = input_frac
                self.seen.other_frac = max(0.0, 1 - _length(worked) / whole - input_frac)


def read_cores(path: str = "/proc/stat") -> list[list[int]]:
    """Clock ticks per core: user, nice, system, idle, iowait, and so on."""
    lines = Path(path).read_text().splitlines()
    return [[int(word) for word in line.split()[1:9]] for line in lines if line[:3] == "cpu" and line[3] != " "]


def sagemaker(seen: Seen) -> list[str]:
    """Names of the rules that fire."""
    low = np.any(np.array(seen.gpu_pct) < 10, axis=0)
    cores, iowait = np.array(seen.core_pct), np.array(seen.iowait_pct)
    fired = []
    if np.mean(low & np.any(iowait > 50, axis=1)) > 0.5:
        fired.append("IOBottleneck")
    if np.mean(low & np.any(cores > 90, axis=1)) > 0.5:
        fired.append("CPUBottleneck")
    gpu_p95 = np.quantile(seen.gpu_pct, 0.95, axis=1)
    if np.quantile(cores.mean(axis=1), 0.95) < 70 and np.any(gpu_p95 < 70):
        fired.append("BatchSize")
    if np.any((gpu_p95 < 70) | ((gpu_p95 > 70) & (np.quantile(seen.gpu_pct, 0.05, axis=1) < 10))):
        fired.append("LowGPUUtilization")
    return fired


def xprof(seen: Seen) -> list[str]:
    """The statements it makes."""
    stated = []
    if seen.input_frac >= 0.05:
        stated.append("HIGHLY input-bound" if seen.input_frac >= 0.2 else "MODERATELY input-bound")
    if seen.other_frac >= 0.03:
        stated.append("other time")
    return stated


def outcome(stated: Iterable[str], accepted: Sequence[str]) -> str:
    """``right``, ``wrong`` or ``silent``."""
    statements = list(stated)
    if causes.HEALTHY in accepted:
        return WRONG if statements else RIGHT
    naming = [name for name in statements if MEANS[name]]
    if not naming:
        return SILENT
    return RIGHT if any(MEANS[name].intersection(accepted) for name in naming) else WRONG


def _open_timelines(pid: int) -> list[TimelineReader]:
    """The timelines of the job's processes; forked workers have their parent's open, too."""
    found: dict[int, str] = {}
    for number in tree_pids(pid):
        path = find_timeline(number)
        if path is not None:
            found.setdefault(os.stat(path).st_ino, path)
    return [TimelineReader(path) for path in found.values()]


_Spans = list[tuple[int, int]]


def _within(spans: Sequence[tuple[int, int]], low: int, high: int) -> _Spans:
    return [(max(a, low), min(b, high)) for a, b in spans if b > low and a < high]


def _rest(spans: _Spans, low: int, high: int) -> _Spans:
    edges = [low, *(edge for span in spans for edge in span), high]
    return [(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True) if b > a]


def _common(one: _Spans, other: _Spans) -> _Spans:
    """Both lists are in order and without overlaps."""
    found, i, j = [], 0, 0
    while i < len(one) and j < len(other):
        low, high = max(one[i][0], other[j][0]), min(one[i][1], other[j][1])
        if high > low:
            found.append((low, high))
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return found


def _length(spans: _Spans) -> int:
    return sum(b - a for a, b in spans)
