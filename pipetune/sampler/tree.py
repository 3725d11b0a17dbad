"""A process and its descendants, summed: who belongs to it, and what they used.

Why two paces: one look at 16 processes must stay far below 1 ms. Processor times, faults, waits and states (two small
files per process, kept open) are read every time; who was born, the bytes read and the threads besides the main one
every half second, and those values are carried in between. Missed is therefore who lives shorter than that, and whose
parent ends within it.

A process is followed by its own open files, not by its number, until they say that it ended: it stays in the sums
when its parent ends first, and a PID that is used again cannot slip in.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from pipetune.records import TreeReading
from pipetune.sampler.proc import PROC, TICK_S, listed_pids, read_children, read_process_stat
from pipetune.sampler.process import FollowedProcess

#: A little under half a second, so that every fifth tick of 0.1 s meets it in spite of jitter.
_SLOW_NS = 450_000_000
#: Two files per process stay open up to here, well below the usual limit of 1024; further ones are opened each time.
_MAX_KEPT = 200
_ENDED = ("Z", "X", "x")


class TreeReader:
    """Follows the tree under one process.

    Args:
        pid: the root; it may not exist yet, and the first process with this number is taken for it.
        proc: where proc is mounted.
        clock: ns; paces the slower half of the work.
    """

    def __init__(self, pid: int, *, proc: str = PROC, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._root, self._proc, self._clock = pid, proc, clock
        self._root_start_ticks: int | None = None
        self._alive: dict[int, FollowedProcess] = {}
        self._ended = _Sums()
        self._strangers: set[int] = set()
        self._slow_due_ns: int | None = None

    def read(self) -> TreeReading | None:
        """The sums as they are now; ``None`` when no process of the tree exists.

        Processes that ended but were not waited for yet are in the sums and not in ``processes``.
        """
        now_ns = self._clock()
        slow = self._slow_due_ns is None or now_ns >= self._slow_due_ns
        for pid, process in list(self._alive.items()):
            if not process.look(slow=slow):
                self._ended.add(process)
                process.close()
                del self._alive[pid]
        # After the looks: those still here are certain to be ours, so their children are, too.
        if slow:
            self._slow_due_ns = now_ns + _SLOW_NS
            self._adopt()
        if not self._alive:
            return None
        sums = _Sums()
        for process in self._alive.values():
            sums.add(process)
        sums.add(self._ended)
        stats = [process.stat for process in self._alive.values()]
        return TreeReading(
            processes=sum(stat.state not in _ENDED for stat in stats),
            cpu_s=sums.cpu_ticks * TICK_S,
            run_delay_s=None if sums.run_delay_ns is None else sums.run_delay_ns / 1e9,
            minor_faults=sums.minor_faults,
            context_switches=sums.switches,
            read_bytes=sums.read_bytes,
            rss_bytes=sum(stat.rss_bytes for stat in stats),
            in_disk_sleep=sum(stat.state == "D" for stat in stats),
        )

    def close(self) -> None:
        """Closes its files. May be called again."""
        for process in self._alive.values():
            process.close()
        self._alive.clear()

    def _adopt(self) -> None:
        """Take in the root, and every process that one of ours has started."""
        if not self._alive:
            self._follow(self._root)
        asked = list(self._alive)
        for pid in asked:
            children = read_children(pid, self._proc, threads=self._alive[pid].stat.threads)
            if children is None:
                self._adopt_by_scan()
                return
            asked += [child for child in children if child not in self._alive and self._follow(child)]

    def _adopt_by_scan(self) -> None:
        # Only PIDs that are new are opened: a process gets into the tree by being started in it and in no other way,
        # so a stranger stays one, and looking again costs one listing however many processes the machine has.
        listed = listed_pids(self._proc)
        self._strangers &= listed
        new = {pid: read_process_stat(pid, self._proc) for pid in listed - self._strangers - self._alive.keys()}
        parents = {pid: stat.parent for pid, stat in new.items() if stat is not None}
        while ours := [pid for pid, parent in parents.items() if parent in self._alive]:
            for pid in ours:
                del parents[pid]
                self._follow(pid)
        self._strangers |= parents.keys()

    def _follow(self, pid: int) -> bool:
        try:
            process = FollowedProcess(pid, self._proc, keep=len(self._alive) < _MAX_KEPT)
        except (OSError, ValueError):
            return False
        if pid == self._root:
            if self._root_start_ticks not in (None, process.stat.start_ticks):
                process.close()
                return False
            self._root_start_ticks = process.stat.start_ticks
        process.look(slow=True)
        self._alive[pid] = process
        return True


class _Sums:
    """Counters that only grow; ``None``: nobody had the value."""

    def __init__(self) -> None:
        self.cpu_ticks = self.minor_faults = 0
        self.run_delay_ns: int | None = None
        self.switches: int | None = None
        self.read_bytes: int | None = None

    def add(self, other: FollowedProcess | _Sums) -> None:
        self.cpu_ticks += other.cpu_ticks
        self.minor_faults += other.minor_faults
        self.run_delay_ns = _plus(self.run_delay_ns, other.run_delay_ns)
        self.switches = _plus(self.switches, other.switches)
        self.read_bytes = _plus(self.read_bytes, other.read_bytes)


def _plus(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else one + other
