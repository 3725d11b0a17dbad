"""Processes that are not pipetune's own: how much CPU time each of them used between two moments."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psutil


@dataclass(frozen=True, slots=True, kw_only=True)
class Other:
    """A process that pipetune did not start."""

    pid: int
    name: str
    """Its command name."""
    cores: float
    """CPU seconds per second."""


#: The parent of all kernel threads.
_KTHREADD = 2
#: CPU time (s) of each process. A process is its PID together with its start, so a PID that is used again is another.
CpuTimes = dict["psutil.Process", float]


def cpu_times() -> CpuTimes:
    """CPU time of all processes that this one can see. Without kernel threads, whose work may be for pipetune.

    Raises:
        OSError: ``/proc`` cannot be listed.
    """
    import psutil

    found = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error), process.oneshot():
            if _KTHREADD not in (process.pid, process.ppid()):
                times = process.cpu_times()
                found[process] = times.user + times.system
    return found


def busiest_others(before: CpuTimes, seconds: float) -> list[Other]:
    """Processes outside this one's tree that ran ``seconds`` ago and run now, the busiest first.

    Args:
        before: what :func:`cpu_times` returned then.
        seconds: how long ago that was.
    """
    import psutil

    me = psutil.Process()
    own = {me, *me.children(recursive=True)}
    found = []
    for process, now_s in cpu_times().items():
        used_s = now_s - before.get(process, now_s)
        if process not in own and used_s > 0 and seconds > 0:
            with contextlib.suppress(psutil.Error):  # it has just ended
                found.append(Other(pid=process.pid, name=process.name(), cores=used_s / seconds))
    return sorted(found, key=lambda other: -other.cores)
