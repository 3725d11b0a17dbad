"""A process and its descendants, summed: which processes they are, and what they used.

Why two paces: one reading of 16 processes must stay far below 1 ms. CPU times, faults, waits and states (two small
files per process, kept open) are read every time; new processes, the bytes read and the threads besides the main one
every half second, and those values are repeated in between. So processes that live for less than half a second may be
missed. Their CPU time is not: the kernel adds it to their parent's when that waits for them, as it does with what a
process used after its last reading. The other counters of a process that ended are those of its last reading.

A process is followed by its open files and not by its PID: it stays in the sums when its parent ends first, and another
process with a reused PID is not mistaken for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from pipetune.machine.proc import PROC, TICK_S, listed_pids, read_children, read_once, read_process_stat
from pipetune.records.observation import TreeReading
from pipetune.sampler.process import FollowedProcess

#: A little under half a second, so that every fifth tick of 0.1 s is late enough in spite of jitter.
_SLOW_NS = 450_000_000
#: Three files per process stay open up to here, well below the usual limit of 1024; further ones are opened each time.
_MAX_KEPT = 150
#: While the kernel has assigned no new PID, no process was started, and three of four rescans are skipped. Not all of
#: them: a list of children can lack one, and a container's own loadavg (lxcfs) is some seconds old.
_MAX_SKIPS = 3


class TreeReader:
    """Follows the tree under one process.

    Args:
        pid: the root; it may not exist yet, and the first process with this number is taken for it.
        proc: where proc is mounted.
        clock: ns; decides when the slow files are read.
    """

    def __init__(self, pid: int, *, proc: str = PROC, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._root, self._proc, self._clock = pid, proc, clock
        self._root_start_ticks: int | None = None
        self._alive: dict[int, FollowedProcess] = {}
        self._ended = _Counters()
        self._strangers: set[int] = set()
        self._slow_due_ns: int | None = None
        self._newest_pid = b""
        self._skips = 0
        self._first = True

    def read(self) -> TreeReading | None:
        """The sums as they are now; ``None`` when no process of the tree exists.

        Processes that ended but were not waited for yet are in the sums and not in ``processes``.
        """
        now_ns = self._clock()
        slow = self._slow_due_ns is None or now_ns >= self._slow_due_ns
        ended = {pid: process for pid, process in self._alive.items() if not process.read(slow=slow)}
        for pid in ended:
            del self._alive[pid]
        self._settle(ended)
        # Search for children after the readings: the processes that are left certainly belong to the tree.
        if slow:
            self._slow_due_ns = now_ns + _SLOW_NS
            if not self._alive or self._process_was_started():
                self._adopt()
        if not self._alive:
            return None
        self._first = False
        counters = _sum(self._ended, self._alive.values())
        stats = [process.stat for process in self._alive.values()]
        return TreeReading(
            processes=sum(not stat.has_ended for stat in stats),
            cpu_s=counters.cpu_ticks * TICK_S,
            run_delay_s=None if counters.run_delay_ns is None else counters.run_delay_ns / 1e9,
            minor_faults=counters.minor_faults,
            context_switches=counters.switches,
            read_bytes=counters.read_bytes,
            rss_bytes=sum(stat.rss_bytes for stat in stats),
            in_disk_sleep=sum(stat.state == "D" for stat in stats),
        )

    def close(self) -> None:
        """Close its files. May be called again."""
        for process in self._alive.values():
            process.close()
        self._alive.clear()

    def _settle(self, ended: dict[int, FollowedProcess]) -> None:
        """Keep the counters of processes that have ended, and find what none of them was seen to use."""
        # Children come after their parents there. So a child is on its parent's account before that one ends, too.
        for process in reversed(ended.values()):
            parent = self._alive.get(process.stat.parent) or ended.get(process.stat.parent)
            if parent is not None:
                parent.counted_ticks += process.ended_ticks
        for process in (*self._alive.values(), *ended.values()):
            process.find_unseen()
        self._ended = _sum(self._ended, ended.values())
        for process in ended.values():
            process.close()

    def _process_was_started(self) -> bool:
        # The last field of loadavg is the newest PID (proc_loadavg(5)), threads included. It is read before the
        # children, so that a process started in between is found the next time.
        text = read_once(f"{self._proc}/loadavg")
        newest_pid = text.rsplit(None, 1)[-1] if text else b""
        if newest_pid and newest_pid == self._newest_pid and self._skips < _MAX_SKIPS:
            self._skips += 1
            return False
        self._newest_pid, self._skips = newest_pid, 0
        return True

    def _adopt(self) -> None:
        """Follow the root, and every process that one of the tree has started."""
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
        # Only new PIDs are read: a process belongs to the tree by being started in it and in no other way, so the
        # others stay strangers, and a rescan costs one listing however many processes the machine has.
        listed = listed_pids(self._proc)
        self._strangers &= listed
        new = {pid: read_process_stat(pid, self._proc) for pid in listed - self._strangers - self._alive.keys()}
        parents = {pid: stat.parent for pid, stat in new.items() if stat is not None}
        while descendants := [pid for pid, parent in parents.items() if parent in self._alive]:
            for pid in descendants:
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
        process.read(slow=True)
        if self._first:  # else its children are of the tree from their start
            process.counted_ticks = process.stat.waited_ticks
        process.find_unseen()
        self._alive[pid] = process
        return True


class _Counters(NamedTuple):
    """Counters that only grow; ``None``: no process had the value."""

    cpu_ticks: int = 0
    minor_faults: int = 0
    run_delay_ns: int | None = None
    switches: int | None = None
    read_bytes: int | None = None


def _sum(start: _Counters, processes: Iterable[FollowedProcess]) -> _Counters:
    cpu_ticks, minor_faults, run_delay_ns, switches, read_bytes = start
    for process in processes:
        cpu_ticks += process.stat.cpu_ticks + process.unseen_ticks
        minor_faults += process.stat.minor_faults
        if process.run_delay_ns is not None:
            run_delay_ns = process.run_delay_ns + (run_delay_ns or 0)
        if process.switches is not None:
            switches = process.switches + (switches or 0)
        if process.read_bytes is not None:
            read_bytes = process.read_bytes + (read_bytes or 0)
    return _Counters(cpu_ticks, minor_faults, run_delay_ns, switches, read_bytes)
