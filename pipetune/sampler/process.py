"""One process, followed until it ends: its open files, and the counters of the last reading."""

from __future__ import annotations

import os

from pipetune.machine.proc import (
    ProcessStat,
    SchedStat,
    parse_context_switches,
    parse_sched_stat,
    read_once,
)
from pipetune.sampler.task_files import TaskFiles

#: Threads read per slow reading, on average, to bound the cost: those of a process with 640 are read at every tenth.
_THREADS_PER_READING = 64
_NOTHING = SchedStat(0, 0)


class FollowedProcess:
    """Counters of one process at the last call of :meth:`read`.

    Context switches are the kernel's count of timeslices in ``schedstat``: the number that ``/proc/PID/status`` gives,
    at a seventh of the cost. Where ``schedstat`` is missing, ``status`` is read, which has the main thread only.

    Args:
        pid: the process.
        proc: where proc is mounted.
        keep: see :class:`pipetune.machine.proc.KeptFile`.

    Raises:
        OSError, ValueError: there is no such process.
    """

    def __init__(self, pid: int, proc: str, *, keep: bool = True) -> None:
        self._pid, self._folder = pid, f"{proc}/{pid}"
        self._files = TaskFiles(self._folder, keep=keep)
        self.stat: ProcessStat = self._files.first_stat
        self._threads: dict[str, SchedStat] = {}
        self._ended_threads = self._others = _NOTHING
        self._skip_threads = 0
        self.run_delay_ns: int | None = None
        """Time that its threads waited for a core; ``None`` where the kernel does not keep it."""
        self.switches: int | None = None
        """Context switches of its threads; ``None``: not known."""
        self.read_bytes: int | None = None
        """Bytes from storage; ``None`` when this user may not read ``/proc/PID/io``."""
        self.counted_ticks = 0
        """CPU time of its ended children, with that of theirs, that is in the sums already."""
        self.unseen_ticks = 0
        """CPU time of its ended children that is not: of those too short-lived to be followed."""

    def read(self, *, slow: bool) -> bool:
        """Read the two cheap files, and with ``slow`` the others too.

        Returns:
            ``False`` when the process has ended; what was read before stays as it was.
        """
        stat = self._files.stat()
        if stat is None:
            return False
        self.stat = stat
        main = self._files.schedstat()
        if main is not None:
            self.run_delay_ns = main.run_delay_ns + self._others.run_delay_ns
            self.switches = main.switches + self._others.switches
        if slow:
            self._read_slow_files()
        return True

    @property
    def ended_ticks(self) -> int:
        """CPU time that its parent's ``waited_ticks`` grow by when it ends, as far as it is in the sums."""
        return self.stat.cpu_ticks + max(self.stat.waited_ticks, self.counted_ticks)

    def find_unseen(self) -> None:
        """Compare what it has waited for with what was counted of it. Called once all processes have been read."""
        self.unseen_ticks = max(self.unseen_ticks, self.stat.waited_ticks - self.counted_ticks)

    def close(self) -> None:
        """Close its files. May be called again."""
        self._files.close()

    def _read_slow_files(self) -> None:
        io = self._files.io()
        if io is not None:
            self.read_bytes = io.read_bytes
        if self.run_delay_ns is None:
            status = read_once(f"{self._folder}/status")
            self.switches = parse_context_switches(status) if status else self.switches
        elif self.stat.threads > 1 or self._threads:
            self._skip_threads -= 1
            if self._skip_threads < 0:
                self._skip_threads = self.stat.threads // _THREADS_PER_READING
                self._read_threads()

    def _read_threads(self) -> None:
        try:
            names = os.listdir(f"{self._folder}/task")
        except OSError:
            return
        now: dict[str, SchedStat] = {}
        for name in names:
            text = None if name == str(self._pid) else read_once(f"{self._folder}/task/{name}/schedstat")
            if text:
                now[name] = parse_sched_stat(text)
        for name, last in self._threads.items():
            # A count that has fallen belongs to another thread with the same number.
            if name not in now or now[name].switches < last.switches:
                self._ended_threads = _plus(self._ended_threads, last)
        self._threads = now
        self._others = self._ended_threads
        for thread in now.values():
            self._others = _plus(self._others, thread)


def _plus(one: SchedStat, other: SchedStat) -> SchedStat:
    return SchedStat(one.run_delay_ns + other.run_delay_ns, one.switches + other.switches)
