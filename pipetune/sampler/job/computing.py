"""The threads of a training process that compute, beside its main thread: what loads where no loader can be seen.

A pool of threads that the script made itself has no name that shows what it is for. Which of its threads compute shows
in their CPU time. It is asked for only where other threads than the main one use any, and the more threads there are,
the less often, so that a process of thousands costs no more than one of a few.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping

from pipetune.machine.proc import PROC, parse_process_stat, read_once
from pipetune.records.observation import TaskReading
from pipetune.sampler.job.task import WatchedTask

#: At most so many threads are followed, those that compute most.
_MAX_FOLLOWED = 16
#: What reading one thread costs, times how often that time must have passed before it is read again: 0.1 % of a core.
_PAUSE_NS_PER_THREAD = 12_000 * 1000
#: Beginnings of names of threads that load nothing: of torch's autograd, CUDA's and NCCL's own.
_OTHERS = ("pt_autograd", "pt_nccl", "pt_data_pin", "cuda", "nccl", "NCCL")


class ComputingThreads:
    """Follows the threads of one process that compute.

    Args:
        pid: the process.
        proc: where proc is mounted.
    """

    def __init__(self, pid: int, proc: str = PROC) -> None:
        self._pid, self._proc = pid, proc
        self._ticks: dict[int, int] = {}
        self._tasks: dict[int, WatchedTask] = {}
        self._due_ns = 0

    def find(self, t_ns: int, names: Mapping[int, str]) -> None:
        """Find those that have computed since the last call, if it is time.

        Args:
            t_ns: now.
            names: thread -> name, of all threads of the process.
        """
        if t_ns < self._due_ns:
            return
        self._due_ns = t_ns + len(names) * _PAUSE_NS_PER_THREAD
        asked = [number for number, name in names.items() if number != self._pid and not name.startswith(_OTHERS)]
        before, self._ticks = self._ticks, dict(self._read_ticks(asked))
        grown = {number: ticks - before.get(number, ticks) for number, ticks in self._ticks.items()}
        if not before:
            return  # of the first call: what they have used before says nothing about now
        most = sorted((number for number in grown if grown[number] > 0), key=lambda number: -grown[number])
        chosen = set(most[:_MAX_FOLLOWED])
        for number in self._tasks.keys() - chosen:
            self._tasks.pop(number).close()
        for number in sorted(chosen - self._tasks.keys()):
            with contextlib.suppress(OSError, ValueError):  # it has ended meanwhile
                self._tasks[number] = WatchedTask(self._pid, tid=number, proc=self._proc)

    def read(self, t_ns: int) -> tuple[TaskReading, ...]:
        """What those that are followed did since the last call."""
        found = []
        for number, task in list(self._tasks.items()):
            is_new = task.newest is None
            reading = task.read(t_ns)
            if reading is None:
                self._tasks.pop(number).close()
            elif not is_new:  # the first reading of a task covers no time
                found.append(reading)
        return tuple(found)

    def close(self) -> None:
        """Close its files. May be called again."""
        for task in self._tasks.values():
            task.close()
        self._tasks.clear()
        self._ticks.clear()

    def _read_ticks(self, numbers: Iterable[int]) -> Iterable[tuple[int, int]]:
        for number in numbers:
            text = read_once(f"{self._proc}/{self._pid}/task/{number}/stat")
            if text:
                with contextlib.suppress(ValueError):
                    yield number, parse_process_stat(text).cpu_ticks
