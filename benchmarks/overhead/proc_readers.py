"""pipetune's reader of a process tree and psutil, for the same facts: CPU time, memory, bytes read from storage.

Three readers take turns at every tick, in an order that is drawn anew. pipetune's finds new processes and reads the I/O
counters at every fifth tick only, and psutil does so in its first variant; in the second it reads everything at every
tick. What is compared is the CPU time of the calling thread, in means over five ticks.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Callable, Mapping
from statistics import fmean, median
from typing import Any, NamedTuple, Protocol

from benchmarks import bench
from pipetune.sampler.tree import TreeReader

SLOW_EVERY = 5
PIPETUNE, SAME_PACE, EVERY_TICK = "pipetune", "psutil, same pace", "psutil, all at every tick"


class Facts(NamedTuple):
    """Of a process and its descendants, in sum."""

    processes: int
    cpu_s: float
    rss_bytes: int
    read_bytes: int | None


class Reader(Protocol):
    """Reads a process tree at one tick."""

    def read(self) -> Facts | None:
        """``None``: the root has ended."""
        ...


class PipetuneReader:
    """pipetune's; its clock advances by ``interval_s`` at each read, so every fifth one is the thorough one."""

    def __init__(self, pid: int, interval_s: float) -> None:
        self._now_ns, self._step_ns = 0, round(interval_s * 1e9)
        self._tree = TreeReader(pid, clock=self._tick)

    def read(self) -> Facts | None:
        """See :class:`Reader`."""
        found = self._tree.read()
        if found is None:
            return None
        return Facts(found.processes, found.cpu_s, found.rss_bytes, found.read_bytes)

    def close(self) -> None:
        """Closes its files."""
        self._tree.close()

    def _tick(self) -> int:
        self._now_ns += self._step_ns
        return self._now_ns


class PsutilReader:
    """psutil's, with :meth:`psutil.Process.oneshot` as its documentation recommends.

    Args:
        pid: the root.
        slow_every: ticks from one search for new processes, and reading of the I/O counters, to the next.
    """

    def __init__(self, pid: int, slow_every: int) -> None:
        import psutil

        self._gone = psutil.NoSuchProcess
        self._root = psutil.Process(pid)
        self._processes = [self._root]
        self._read_bytes: dict[int, int] = {}
        self._slow_every, self._ticks = slow_every, 0

    def read(self) -> Facts | None:
        """See :class:`Reader`."""
        slow = self._ticks % self._slow_every == 0
        self._ticks += 1
        if slow:
            self._processes = [self._root, *self._root.children(recursive=True)]
        count, cpu_s, rss_bytes = 0, 0.0, 0
        for process in self._processes:
            with contextlib.suppress(self._gone), process.oneshot():
                times = process.cpu_times()
                cpu_s += times.user + times.system
                rss_bytes += process.memory_info().rss
                if slow:
                    self._read_bytes[process.pid] = process.io_counters().read_bytes
                count += 1
        return Facts(count, cpu_s, rss_bytes, sum(self._read_bytes.values()))


def compare(ticks: int, interval_s: float) -> dict[str, Any]:
    """Read this process's tree at so many ticks (a multiple of five) with all three readers."""
    pid, draw = os.getpid(), random.Random(0)
    own = PipetuneReader(pid, interval_s)
    readers: dict[str, Reader] = {
        PIPETUNE: own, SAME_PACE: PsutilReader(pid, SLOW_EVERY), EVERY_TICK: PsutilReader(pid, 1),
    }  # fmt: skip
    with contextlib.closing(own):
        for reader in readers.values():
            for _ in range(SLOW_EVERY):  # files are opened, code is compiled
                reader.read()
        spent_s: dict[str, list[float]] = {name: [] for name in readers}
        facts: dict[str, Facts | None] = {}
        for _ in range(ticks):
            began = time.perf_counter()
            for name in draw.sample(list(readers), len(readers)):
                taken_s, facts[name] = thread_s(readers[name].read)
                spent_s[name].append(taken_s)
            time.sleep(max(0.0, interval_s - (time.perf_counter() - began)))
    return {
        "ticks": ticks,
        "same_facts": same(facts),
        "readers": {name: summary(taken, spent_s[PIPETUNE]) for name, taken in spent_s.items()},
    }


def thread_s(work: Callable[[], Facts | None]) -> tuple[float, Facts | None]:
    """CPU time of this thread that a call takes (s), and what it returns."""
    before_s = time.thread_time()
    found = work()
    return time.thread_time() - before_s, found


def same(facts: Mapping[str, Facts | None]) -> bool:
    """Whether the readers agree: processes exactly, what grows meanwhile within 2 %."""
    own = facts[PIPETUNE]
    return own is not None and all(
        other is not None
        and other.processes == own.processes
        and abs(other.cpu_s - own.cpu_s) <= 0.02 * own.cpu_s
        and abs(other.rss_bytes - own.rss_bytes) <= 0.02 * own.rss_bytes
        and abs((other.read_bytes or 0) - (own.read_bytes or 0)) <= 0.02 * (own.read_bytes or 0) + 1
        for other in facts.values()
    )


def summary(taken_s: list[float], own_s: list[float]) -> dict[str, Any]:
    """Cost per tick, and how often pipetune's cost of the same ticks."""
    costs_s, own_costs_s = over_cycles(taken_s), over_cycles(own_s)
    ratios = [one / other for one, other in zip(costs_s, own_costs_s, strict=True)]
    low, high = bench.bootstrap_ci95(ratios)
    return {
        "tick_mean_s": fmean(taken_s), "tick_max_s": max(taken_s), "ratio": median(ratios), "ratio_ci95": [low, high],
        "cycles_s": costs_s,
    }  # fmt: skip


def over_cycles(taken_s: list[float]) -> list[float]:
    """Means over five ticks each: one thorough reading and four short ones."""
    return [fmean(taken_s[first : first + SLOW_EVERY]) for first in range(0, len(taken_s), SLOW_EVERY)]
