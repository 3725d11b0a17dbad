"""Which processes besides ours used the processor: CPU time of every visible process before and after."""

from __future__ import annotations

import os
from dataclasses import dataclass

from pipetune.machine.proc import PROC, TICK_S, listed_pids, read_once, read_process_stat, tree_pids


@dataclass(frozen=True, slots=True, kw_only=True)
class Other:
    """A process that is none of ours."""

    pid: int
    name: str
    """Its command name, as in ``/proc/PID/comm``."""
    cores: float
    """CPU seconds per second."""


#: The parent of all kernel threads.
_KTHREADD = 2
#: ``{pid: (start, CPU time)}``, both in clock ticks.
CpuTimes = dict[int, tuple[int, int]]


def cpu_times(proc: str = PROC) -> CpuTimes:
    """Of all processes that this one can see. Not of kernel threads, which may well work for us."""
    found = {}
    for pid in listed_pids(proc):
        stat = read_process_stat(pid, proc)
        if stat is not None and _KTHREADD not in (pid, stat.parent):
            found[pid] = (stat.start_ticks, stat.cpu_ticks)
    return found


def busiest_others(before: CpuTimes, seconds: float, proc: str = PROC) -> list[Other]:
    """Processes that were there ``seconds`` ago and are now, without this one's tree; the busiest first.

    Args:
        before: what :func:`cpu_times` gave then.
    """
    ours = set(tree_pids(os.getpid(), proc))
    found = []
    for pid, (start, ticks) in cpu_times(proc).items():
        then = before.get(pid)
        if pid in ours or then is None or then[0] != start or seconds <= 0:
            continue
        cores = (ticks - then[1]) * TICK_S / seconds
        if cores > 0:
            name = (read_once(f"{proc}/{pid}/comm") or b"?").decode(errors="replace").strip()
            found.append(Other(pid=pid, name=name, cores=cores))
    return sorted(found, key=lambda other: -other.cores)
