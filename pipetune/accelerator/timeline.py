"""Timeline of an emulated accelerator's steps, which ``pipetune watch`` reads from another process.

NVML reports how busy a real GPU is; an emulated one publishes a ring of its newest steps in a memory file without a
name in any folder. A process that may read this one finds the file among its open files and maps it. Nothing is left
when the process ends, and a process that is not watched pays a microsecond per step.

Why not ``multiprocessing.shared_memory``: its file has a name in /dev/shm, which a killed process leaves behind.

Layout (little endian): 8 bytes magic, u64 steps written so far, u64 capacity, then ``capacity`` entries of three i64:
start and end of the step's work (monotonic ns) and how long the device would have needed for it had it been fully
used (ns). The count is raised after the entry is complete.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
from typing import NamedTuple

NAME = "pipetune-device-timeline"
_MAGIC = b"pipetun1"
_HEADER = struct.Struct("<8sQQ")
_ENTRY = struct.Struct("<qqq")
_COUNT = struct.Struct("<Q")
_CAPACITY = 4096
#: Most steps that are read from another process's ring.
_MOST_CAPACITY = 1 << 20


class DeviceEntry(NamedTuple):
    """One step on the device."""

    t_start_ns: int
    t_end_ns: int
    full_ns: int
    """Time that the work would have taken had the device been fully used."""


class TimelineWriter:
    """Publishes steps. Used by one process; forked copies must not write."""

    def __init__(self, capacity: int = _CAPACITY) -> None:
        self._capacity = capacity
        size = _HEADER.size + capacity * _ENTRY.size
        # Close-on-exec: a program that this process starts has a device of its own, or none.
        self._fd = os.memfd_create(NAME, os.MFD_CLOEXEC)
        os.ftruncate(self._fd, size)
        self._map = mmap.mmap(self._fd, size)
        _HEADER.pack_into(self._map, 0, _MAGIC, 0, capacity)
        self._count = 0

    def add(self, t_start_ns: int, t_end_ns: int, full_ns: int) -> None:
        """Publish a queued step, whose end may be in the future."""
        place = _HEADER.size + (self._count % self._capacity) * _ENTRY.size
        _ENTRY.pack_into(self._map, place, t_start_ns, t_end_ns, full_ns)
        self._count += 1
        _COUNT.pack_into(self._map, 8, self._count)

    def close(self) -> None:
        """Close the timeline. May be called again."""
        if self._fd >= 0:
            self._map.close()
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        # A process that still has the file open would look like a training job.
        if getattr(self, "_map", None) is not None:
            self.close()


class TimelineReader:
    """Maps the timeline that another process publishes.

    Args:
        path: ``/proc/PID/fd/N``.

    Raises:
        OSError: it does not exist, or this user may not read it.
        ValueError: it is not a timeline.
    """

    def __init__(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if os.fstat(fd).st_size < _HEADER.size:
                raise ValueError(f"{path} is not a device timeline")
            self._map = mmap.mmap(fd, 0, access=mmap.ACCESS_READ)
        finally:
            os.close(fd)
        magic, _, self._capacity = _HEADER.unpack_from(self._map, 0)
        fits = 0 < self._capacity <= _MOST_CAPACITY and len(self._map) >= _HEADER.size + self._capacity * _ENTRY.size
        if magic != _MAGIC or not fits:
            self._map.close()
            raise ValueError(f"{path} is not a device timeline of this version")

    @property
    def steps(self) -> int:
        """Number of steps written so far."""
        return int(_COUNT.unpack_from(self._map, 8)[0])

    def entries(self, since_ns: int) -> list[DeviceEntry]:
        """The newest steps, oldest first, that end after ``since_ns``; at most as many as the ring holds."""
        count = self.steps
        found: list[DeviceEntry] = []
        # The oldest entry may be overwritten at this moment, so it is left out.
        for number in range(count - 1, max(-1, count - self._capacity), -1):
            place = _HEADER.size + (number % self._capacity) * _ENTRY.size
            entry = DeviceEntry(*_ENTRY.unpack_from(self._map, place))
            if entry.t_end_ns <= since_ns:
                break
            found.append(entry)
        return found[::-1]

    def close(self) -> None:
        """Close the timeline. May be called again."""
        with contextlib.suppress(ValueError):
            self._map.close()


def busy_between(entries: list[DeviceEntry], t_start_ns: int, t_end_ns: int) -> tuple[float, float]:
    """Shares of a time span (0..1): in which the device was busy, and in which it would have been if fully used."""
    span_ns = max(1, t_end_ns - t_start_ns)
    busy_ns = full_ns = 0.0
    for entry in entries:
        inside = min(entry.t_end_ns, t_end_ns) - max(entry.t_start_ns, t_start_ns)
        if inside > 0:
            busy_ns += inside
            full_ns += inside * entry.full_ns / max(1, entry.t_end_ns - entry.t_start_ns)
    return min(1.0, busy_ns / span_ns), min(1.0, full_ns / span_ns)


def idle_at(entries: list[DeviceEntry], t_ns: int) -> bool:
    """No step was running at that instant."""
    return not any(entry.t_start_ns <= t_ns < entry.t_end_ns for entry in entries)


def find_timeline(pid: int, proc: str = "/proc") -> str | None:
    """``/proc/PID/fd/N`` of a process's newest timeline; ``None``: it has none, or this user may not see its files."""
    folder = f"{proc}/{pid}/fd"
    try:
        names = sorted(os.listdir(folder), key=int, reverse=True)
    except (OSError, ValueError):
        return None
    for name in names:
        with contextlib.suppress(OSError):
            if os.readlink(f"{folder}/{name}").startswith(f"/memfd:{NAME}"):
                return f"{folder}/{name}"
    return None
