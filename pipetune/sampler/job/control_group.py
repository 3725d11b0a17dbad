"""The control groups of another process: its CPU quota, the time in which the quota stopped it, and its pressure."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from pipetune.machine import cgroup
from pipetune.machine.proc import PROC, KeptFile, open_kept, parse_pressure_some

_PRESSURES = ("cpu", "io", "memory")


class GroupReading(NamedTuple):
    """Throttling and pressure since the last reading; ``None``: unavailable."""

    throttled_frac: float | None
    psi_cpu_some_pct: float | None
    psi_io_some_pct: float | None
    psi_memory_some_pct: float | None


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
    """Reads the groups that the process is in now; a job that is moved to other groups later is not followed.

    Args:
        pid: the job's process.
        proc: where proc is mounted.
        root: what to put before the mount points named there.
    """

    def __init__(self, pid: int, *, proc: str = PROC, root: str = "/") -> None:
        self.quota_cores = cgroup.quota_cores(proc=proc, root=root, pid=pid)
        self._throttled = self._throttled_file(pid, proc, root)
        own = cgroup.group_folders(cgroup.V2, proc=proc, root=root, pid=pid)
        # The topmost group is the whole machine; only a group below it describes the job.
        folder = own[0] if len(own) > 1 else None
        self._pressures = [None if folder is None else _readable(f"{folder}/{name}.pressure") for name in _PRESSURES]
        self._before: tuple[int, int | None, list[int | None]] | None = None

    @property
    def has_pressure(self) -> bool:
        """Whether the group has all three pressures itself, without those of neighbours."""
        return all(file is not None for file in self._pressures)

    def read(self, t_ns: int) -> GroupReading:
        """Read at time ``t_ns``. The first reading has nothing to compare with: all ``None``."""
        throttled_us = _read(self._throttled, parse_throttled_us)
        waits_us = [_read(file, parse_pressure_some) for file in self._pressures]
        before, self._before = self._before, (t_ns, throttled_us, waits_us)
        if before is None or t_ns <= before[0]:
            return GroupReading(None, None, None, None)
        span_us = (t_ns - before[0]) / 1e3
        # Each core's queue is throttled separately and the times are summed, so the sum can exceed the span.
        throttled = _share(before[1], throttled_us, span_us)
        return GroupReading(throttled, *(_percent(a, b, span_us) for a, b in zip(before[2], waits_us, strict=True)))

    def close(self) -> None:
        """Close its files. May be called again."""
        for file in (self._throttled, *self._pressures):
            if file is not None:
                file.close()

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
            file = _readable(f"{folder}/cpu.stat")
            if file is not None:
                return file
        return None


def _readable(path: str) -> KeptFile | None:
    """A kept file that can be read: with psi=0 the pressure files exist, and reading them fails."""
    file = open_kept(path)
    if file is not None:
        try:
            file.read()
        except OSError:
            file.close()
            return None
    return file


def _read(file: KeptFile | None, parse: Callable[[bytes], int | None]) -> int | None:
    try:
        return None if file is None else parse(file.read())
    except (OSError, ValueError):
        return None


def _share(before: int | None, after: int | None, span_us: float) -> float | None:
    return None if before is None or after is None else min(1.0, max(0, after - before) / span_us)


def _percent(before: int | None, after: int | None, span_us: float) -> float | None:
    share = _share(before, after, span_us)
    return None if share is None else 100 * share
