"""How busy a rank's accelerator was, by NVML for a GPU and by the published timeline for an emulated one."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from pipetune.accelerator.timeline import TimelineReader, busy_between, find_timeline, idle_at
from pipetune.machine.nvml.gpu import Gpu
from pipetune.machine.proc import PROC
from pipetune.records.observation import EMULATED, LOADER_WAIT, NVML, BusySpan, GpuReading, GpuSharing

#: While a timeline is read, a newer one is searched for only this often: a search reads the name of every open file.
_SEARCH_NS = 10_000_000_000


class DeviceReading(NamedTuple):
    """Shares since the last reading; see :class:`pipetune.records.observation.RankReading`."""

    source: str = LOADER_WAIT
    busy_frac: float | None = None
    active_frac: float | None = None
    idle_now: bool | None = None
    gpu: GpuReading | None = None
    spans: tuple[BusySpan, ...] = ()
    sharing: GpuSharing | None = None


class Neighbours(NamedTuple):
    """Who computes on a rank's GPU: PIDs as NVML numbers them."""

    own: frozenset[int]
    """The job's ranks and their descendants; empty: which of them is unknown."""
    others: dict[int, str]
    """PID -> what the process is called."""


class DeviceReader:
    """The accelerator of one training process.

    Args:
        pid: the process.
        gpu: an open GPU, which the caller closes; ``None``: none was found.
        neighbours: finds out who else computes on that GPU.
        proc: where proc is mounted.
        clock: ns, like ``time.monotonic_ns``.
    """

    def __init__(
        self, pid: int, gpu: Gpu | None, *, neighbours: Callable[[Gpu], Neighbours | None] = lambda gpu: None,
        proc: str = PROC, clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:  # fmt: skip
        self._neighbours = neighbours
        self._pid, self._gpu, self._proc, self._clock = pid, gpu, proc, clock
        self._timeline: TimelineReader | None = None
        self._identity: tuple[str, int] | None = None
        self._before_ns: int | None = None
        self._search_due_ns = 0
        self._known_ns = 0

    @property
    def lost(self) -> str | None:
        """Why the GPU cannot be read any more; ``None``: it can, or there is none."""
        return None if self._gpu is None else self._gpu.lost

    def describe_slow_utilisation(self, interval_s: float) -> str | None:
        """See :meth:`pipetune.machine.nvml.gpu.Gpu.describe_slow_utilisation`; ``None`` also where there is no GPU."""
        return None if self._gpu is None else self._gpu.describe_slow_utilisation(interval_s)

    def use(self, gpu: Gpu) -> None:
        """Read this GPU from now on; the job has begun to use it."""
        self._gpu = gpu

    def read(self, t_ns: int, *, search: bool) -> DeviceReading:
        """Read at time ``t_ns``; with ``search``, search for a new timeline first."""
        if search and (self._timeline is None or t_ns >= self._search_due_ns):
            self._search_due_ns = t_ns + _SEARCH_NS
            self._search()
        before_ns, self._before_ns = self._before_ns, t_ns
        if self._gpu is not None and not self._gpu.lost:
            found = self._read_gpu(self._gpu)
            if not self._gpu.lost:
                return found
        entries = None if self._timeline is None else self._timeline.entries(t_ns if before_ns is None else before_ns)
        if entries is None:
            return DeviceReading()
        if before_ns is None:
            return DeviceReading(EMULATED)
        busy, active_share = busy_between(entries, before_ns, t_ns)
        return DeviceReading(EMULATED, busy, active_share, idle_at(entries, t_ns))

    def close(self) -> None:
        """Close the timeline, not the GPU. May be called again."""
        if self._timeline is not None:
            self._timeline.close()
            self._timeline = None

    def _read_gpu(self, gpu: Gpu) -> DeviceReading:
        reading = gpu.read()
        util, active = reading.util_pct, reading.sm_active_pct
        if util is None:  # a MIG slice has no utilisation, but SM activity
            util = active
        spans = gpu.busy_spans(self._known_ns)
        if spans:
            self._known_ns = spans[-1].t_end_ns
        if util is None:
            return DeviceReading(gpu=reading)
        busy, active_frac = util / 100, None if active is None else active / 100
        sharing, own = self._shared(gpu, busy)
        if own < 1:
            spans = tuple(replace(span, busy_frac=own * span.busy_frac) for span in spans)
            busy, active_frac = own * busy, None if active_frac is None else own * active_frac
        return DeviceReading(NVML, busy, active_frac, None, reading, spans, sharing)

    def _shared(self, gpu: Gpu, busy: float) -> tuple[GpuSharing | None, float]:
        """Who else uses the GPU, and which part of its busy time is this rank's (0..1)."""
        neighbours = self._neighbours(gpu)
        if neighbours is None or not neighbours.others:
            return None, 1.0
        names = tuple(neighbours.others.values())
        fracs = gpu.process_fracs() if neighbours.own else None
        if fracs is None:
            return GpuSharing(processes=names, others_frac=None), 1.0
        own = sum(frac for pid, frac in fracs.items() if pid in neighbours.own)
        others = min(1.0, sum(frac for pid, frac in fracs.items() if pid in neighbours.others))
        # They take turns, so what is not theirs is ours; with MPS they run at once, and each has its own figure.
        part = max(own, busy - others) / busy if busy > 0 else 1.0
        return GpuSharing(processes=names, others_frac=others), min(1.0, part)

    def _search(self) -> None:
        if self._gpu is not None and not self._gpu.lost:
            return
        path = find_timeline(self._pid, self._proc)
        if path is None:
            return
        with contextlib.suppress(OSError, ValueError):
            # The inode belongs to the identity: a closed file's descriptor is reused by the next file that is opened.
            identity = (path, os.stat(path).st_ino)
            if identity == self._identity:
                return
            timeline = TimelineReader(path)
            self.close()
            self._timeline, self._identity = timeline, identity
