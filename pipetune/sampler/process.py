"""One process, followed from when it is found until it ends: its open files, and what they said last."""

from __future__ import annotations

import os

from pipetune.sampler.proc import (
    KeptFile,
    ProcessStat,
    SchedStat,
    parse_context_switches,
    parse_process_stat,
    parse_read_bytes,
    parse_sched_stat,
    read_once,
)

#: Threads read per slow look, on average: a process with 640 has them read at every tenth, which bounds the cost.
_THREADS_PER_LOOK = 64
_NOTHING = SchedStat(0, 0)


class FollowedProcess:
    """Counters of one process as they were when :meth:`look` was called last.

    Context switches are the kernel's count of timeslices in ``schedstat``: the number that ``/proc/PID/status`` gives,
    at a seventh of the cost. Where ``schedstat`` is missing, ``status`` is asked, which tells of the main thread only.

    Args:
        pid: the process.
        proc: where proc is mounted.
        keep: see :class:`pipetune.sampler.proc.KeptFile`.

    Raises:
        OSError, ValueError: there is no such process.
    """

    def __init__(self, pid: int, proc: str, *, keep: bool = True) -> None:
        self._pid, self._folder = pid, f"{proc}/{pid}"
        self._stat_file = KeptFile(f"{self._folder}/stat", keep=keep)
        try:
            self.stat: ProcessStat = parse_process_stat(self._stat_file.read())
        except (OSError, ValueError):
            self._stat_file.close()
            raise
        try:
            self._sched_file: KeptFile | None = KeptFile(f"{self._folder}/schedstat", keep=keep)
        except OSError:
            self._sched_file = None
        self._main: SchedStat | None = None
        self._threads: dict[str, SchedStat] = {}
        self._ended_threads = self._others = _NOTHING
        self._skip_threads = 0
        self._status_switches: int | None = None
        self.read_bytes: int | None = None
        """Bytes from storage; ``None`` when ``/proc/PID/io`` is not for us to read (another user's process)."""

    @property
    def cpu_ticks(self) -> int:
        """User and system time, see :data:`pipetune.sampler.proc.TICK_S`."""
        return self.stat.cpu_ticks

    @property
    def minor_faults(self) -> int:
        """Page faults that needed no storage."""
        return self.stat.minor_faults

    @property
    def run_delay_ns(self) -> int | None:
        """Time that its threads waited for a core; ``None`` where the kernel does not keep it."""
        return None if self._main is None else self._main.run_delay_ns + self._others.run_delay_ns

    @property
    def switches(self) -> int | None:
        """Context switches of its threads; ``None``: not known."""
        return self._status_switches if self._main is None else self._main.switches + self._others.switches

    def look(self, *, slow: bool) -> bool:
        """Read the two cheap files, and with ``slow`` the others too.

        Returns:
            ``False`` when the process has ended; what was read before stays as it was.
        """
        try:
            stat = parse_process_stat(self._stat_file.read())
        except (OSError, ValueError):
            return False
        if stat.start_ticks != self.stat.start_ticks:
            return False
        self.stat = stat
        if self._sched_file is not None:
            try:
                self._main = parse_sched_stat(self._sched_file.read())
            except (OSError, ValueError):
                self._sched_file.close()
                self._sched_file = None
        if slow:
            self._look_slowly()
        return True

    def close(self) -> None:
        """Closes its files. May be called again."""
        self._stat_file.close()
        if self._sched_file is not None:
            self._sched_file.close()

    def _look_slowly(self) -> None:
        text = read_once(f"{self._folder}/io")
        if text is not None:
            self.read_bytes = parse_read_bytes(text)
        if self._main is None:
            status = read_once(f"{self._folder}/status")
            self._status_switches = parse_context_switches(status) if status else None
        elif self.stat.threads > 1 or self._threads:
            self._skip_threads -= 1
            if self._skip_threads < 0:
                self._skip_threads = self.stat.threads // _THREADS_PER_LOOK
                self._look_at_threads()

    def _look_at_threads(self) -> None:
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
            # A number that counts from 0 again is another thread with the number of one that ended.
            if name not in now or now[name].switches < last.switches:
                self._ended_threads = _plus(self._ended_threads, last)
        self._threads = now
        self._others = self._ended_threads
        for thread in now.values():
            self._others = _plus(self._others, thread)


def _plus(one: SchedStat, other: SchedStat) -> SchedStat:
    return SchedStat(one.run_delay_ns + other.run_delay_ns, one.switches + other.switches)
