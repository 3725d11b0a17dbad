"""The control groups of another process: its CPU quota, the time in which the quota stopped it, and its pressure."""

from __future__ import annotations

from typing import NamedTuple

from pipetune.machine import cgroup
from pipetune.machine.pressure import RESOURCES, Pressure, PressureReader
from pipetune.machine.proc import PROC, KeptFile, open_kept


class GroupReading(NamedTuple):
    """Throttling and pressure since the last reading; ``None``: unavailable."""

    throttled_frac: float | None = None
    """Share of the time in which the quota stopped the group, at most 1."""
    pressure: Pressure = Pressure()
    """Of the group alone, without the rest of the machine."""


class Throttled(NamedTuple):
    """``cpu.stat``'s counters of a quota."""

    us: int
    """Time in which it stopped the group, summed over the queues of all cores (µs)."""
    periods: int = 0
    """Periods that have passed in which something ran."""
    stopped_periods: int = 0
    """Those of them in which it stopped the group on some core."""


def parse_throttled(text: bytes) -> Throttled | None:
    """The counters in ``cpu.stat``; version 1 counts ns (``throttled_time``). ``None``: there are none."""
    counts = {name: int(value) for name, _, value in (line.partition(b" ") for line in text.splitlines())}
    us = counts.get(b"throttled_usec", counts[b"throttled_time"] // 1000 if b"throttled_time" in counts else None)
    return None if us is None else Throttled(us, counts.get(b"nr_periods", 0), counts.get(b"nr_throttled", 0))


class GroupReader:
    """Reads the groups that the process is in now, even if the job is moved to others later.

    Args:
        pid: the job's process.
        proc: where proc is mounted.
        root: what to put before the mount points named there.
    """

    def __init__(self, pid: int, *, proc: str = PROC, root: str = "/") -> None:
        self.quota_cores = cgroup.quota_cores(proc=proc, root=root, pid=pid)
        self._throttled = self._throttled_file(pid, proc, root)
        own = cgroup.group_folders(cgroup.V2, proc=proc, root=root, pid=pid)
        # The root group is the whole machine; only a group below it describes the job.
        folder = own[0] if len(own) > 1 else None
        self._pressure = PressureReader([] if folder is None else [f"{folder}/{name}.pressure" for name in RESOURCES])
        self._before: tuple[int, Throttled | None] | None = None

    @property
    def has_pressure(self) -> bool:
        """Whether the kernel keeps all three pressures for the group alone."""
        return self._pressure.complete

    def read(self, t_ns: int) -> GroupReading:
        """Read at time ``t_ns``. The first reading has nothing to compare with: all ``None``."""
        now = self._counters()
        before, self._before = self._before, (t_ns, now)
        pressure = self._pressure.read(t_ns)
        if before is None or before[1] is None or now is None or t_ns <= before[0]:
            return GroupReading(None, pressure)
        # Each core's queue is throttled separately and the times are summed, so the sum can exceed the span; but not
        # the share of the periods in which any of them was.
        frac = min(1.0, max(0, now.us - before[1].us) / ((t_ns - before[0]) / 1e3))
        periods = now.periods - before[1].periods
        if periods > 0:
            frac = min(frac, max(0, now.stopped_periods - before[1].stopped_periods) / periods)
        return GroupReading(frac, pressure)

    def close(self) -> None:
        """Close its files. May be called again."""
        if self._throttled is not None:
            self._throttled.close()
        self._pressure.close()

    def _counters(self) -> Throttled | None:
        try:
            return None if self._throttled is None else parse_throttled(self._throttled.read())
        except (OSError, ValueError):
            return None

    def _throttled_file(self, pid: int, proc: str, root: str) -> KeptFile | None:
        if self.quota_cores is None:
            return None
        folders = [
            folder
            for controller in (cgroup.V2, "cpu")
            for folder in cgroup.group_folders(controller, proc=proc, root=root, pid=pid)
            if cgroup.quota_of(folder) is not None
        ]
        # The tightest quota is the one that stops the job.
        for folder in sorted(folders, key=lambda folder: cgroup.quota_of(folder) or 0.0):
            file = open_kept(f"{folder}/cpu.stat", probe=True)
            if file is not None:
                return file
        return None
