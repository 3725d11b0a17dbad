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


def parse_throttled_us(text: bytes) -> int | None:
    """``cpu.stat`` -> time (µs) in which the quota stopped the group; version 1 counts ns (``throttled_time``)."""
    for line in text.splitlines():
        name, _, value = line.partition(b" ")
        if name == b"throttled_usec":
            return int(value)
        if name == b"throttled_time":
            return int(value) // 1000
    return None


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
        self._before: tuple[int, int | None] | None = None

    @property
    def has_pressure(self) -> bool:
        """Whether the kernel keeps all three pressures for the group alone."""
        return self._pressure.complete

    def read(self, t_ns: int) -> GroupReading:
        """Read at time ``t_ns``. The first reading has nothing to compare with: all ``None``."""
        stopped_us = self._stopped_us()
        before, self._before = self._before, (t_ns, stopped_us)
        pressure = self._pressure.read(t_ns)
        if before is None or before[1] is None or stopped_us is None or t_ns <= before[0]:
            return GroupReading(None, pressure)
        # Each core's queue is throttled separately and the times are summed, so the sum can exceed the span.
        return GroupReading(min(1.0, max(0, stopped_us - before[1]) / ((t_ns - before[0]) / 1e3)), pressure)

    def close(self) -> None:
        """Close its files. May be called again."""
        if self._throttled is not None:
            self._throttled.close()
        self._pressure.close()

    def _stopped_us(self) -> int | None:
        try:
            return None if self._throttled is None else parse_throttled_us(self._throttled.read())
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
