"""Timeline of an emulated accelerator's steps, which ``pipetune watch`` reads from another process.

NVML reports how busy a real GPU is; an emulated one publishes a ring of its newest steps in a memory file without a
name in any folder. A process that may read this one finds the file among its open files and reads it. Nothing is left
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
import stat
import struct
from typing import NamedTuple

NAME = "pipetune-device-timeline"
_MAGIC = b"pipetun1"
_HEADER = struct.Struct("<8sQQ")
_ENTRY = struct.Struct("<qqq")
_COUNT = struct.Struct("<Q")
_COUNT_PLACE = len(_MAGIC)
_CAPACITY = 4096
#: A larger ring is none of ours. So many entries are read at once: about as many as a reading needs.
_MAX_CAPACITY, _PIECE = 1 << 20, 32


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
        _COUNT.pack_into(self._map, _COUNT_PLACE, self._count)

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
    """Reads the timeline that another process publishes.

    The file stays the other process's: it may shrink it or fill it with anything at any time. So it is read and never
    mapped, because a mapped file that shrinks ends its reader with SIGBUS; what is no step any more is left out.

    Args:
        path: ``/proc/PID/fd/N``.

    Raises:
        OSError: it does not exist, or this user may not read it.
        ValueError: it is not a timeline.
    """

    def __init__(self, path: str) -> None:
        # Not blocking: by now the descriptor may be a pipe's.
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            about = os.fstat(self._fd)
            header = os.pread(self._fd, _HEADER.size, 0) if stat.S_ISREG(about.st_mode) else b""
            if len(header) < _HEADER.size:
                raise ValueError(f"{path} is not a device timeline")
            magic, _, self._capacity = _HEADER.unpack(header)
            size = _HEADER.size + self._capacity * _ENTRY.size
            if magic != _MAGIC or about.st_size < size or not 0 < self._capacity <= _MAX_CAPACITY:
                raise ValueError(f"{path} is not a device timeline of this version")
        except BaseException:
            self.close()
            raise

    @property
    def steps(self) -> int:
        """Number of steps written so far; 0 once the file was cut off."""
        text = b"" if self._fd < 0 else os.pread(self._fd, _COUNT.size, _COUNT_PLACE)
        return int(_COUNT.unpack(text)[0]) if len(text) == _COUNT.size else 0

    def entries(self, since_ns: int) -> list[DeviceEntry]:
        """The newest steps, oldest first, that end after ``since_ns``; at most as many as the ring holds."""
        count = self.steps
        found: list[DeviceEntry] = []
        # The oldest entry may be overwritten at this moment, so it is left out.
        oldest = max(0, count - self._capacity + 1)
        while count > oldest:
            newest = self._newest(count, oldest)
            for entry in newest:
                if entry.t_end_ns <= since_ns:
                    return found[::-1]
                found.append(entry)
            if not newest:
                break
            count -= len(newest)
        return found[::-1]

    def _newest(self, count: int, oldest: int) -> list[DeviceEntry]:
        """Some of the steps ``oldest`` to ``count - 1``, those that lie in one piece: the newest first."""
        last = (count - 1) % self._capacity
        number = min(last + 1, count - oldest, _PIECE)
        text = os.pread(self._fd, number * _ENTRY.size, _HEADER.size + (last + 1 - number) * _ENTRY.size)
        if len(text) < number * _ENTRY.size:
            return []
        return [DeviceEntry(*fields) for fields in _ENTRY.iter_unpack(text)][::-1]

    def close(self) -> None:
        """Close the timeline. May be called again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def busy_between(entries: list[DeviceEntry], t_start_ns: int, t_end_ns: int) -> tuple[float, float]:
    """Shares of a time span (0..1): in which the device was busy, and in which it would have been if fully used."""
    span_ns = max(1, t_end_ns - t_start_ns)
    busy_ns = full_ns = 0.0
    for entry in entries:
        inside = min(entry.t_end_ns, t_end_ns) - max(entry.t_start_ns, t_start_ns)
        if inside > 0:
            busy_ns += inside
            full_ns += inside * entry.full_ns / max(1, entry.t_end_ns - entry.t_start_ns)
    return min(1.0, busy_ns / span_ns), max(0.0, min(1.0, full_ns / span_ns))


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
