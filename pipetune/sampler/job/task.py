"""One process or thread of a watched job: what it used and what it waited for since the last reading.

Unlike :class:`pipetune.sampler.process.FollowedProcess`, which sums the threads of a process for a sweep's totals, this
keeps every worker apart and also reads what it waits for.
"""

from __future__ import annotations

from pipetune.machine.proc import PROC, TICK_S, IoCounters, read_once
from pipetune.records.observation import TaskReading
from pipetune.sampler.job.waits import parse_wchan, wait_class
from pipetune.sampler.task_files import TaskFiles

#: Processes whose files are kept open at most: 1024 descriptors are the usual limit.
MAX_KEPT = 150


class WatchedTask:
    """Reads one process, or with ``tid`` one of its threads alone.

    Args:
        pid: the process.
        tid: the thread; ``None``: the whole process, its times summed over threads, its state the main thread's.
        proc: where proc is mounted.
        keep: keep its files open between readings.
        io: read its ``io`` counters, too; they are per process or per thread.
        waits: read what it waits for, too: for a core (``schedstat``) and in the kernel (``wchan``).

    Raises:
        OSError, ValueError: there is no such task.
    """

    def __init__(
        self,
        pid: int,
        *,
        tid: int | None = None,
        proc: str = PROC,
        keep: bool = True,
        io: bool = True,
        waits: bool = True,
    ) -> None:
        self.pid, self.number = pid, tid or pid
        folder = self._folder = f"{proc}/{pid}" if tid is None else f"{proc}/{pid}/task/{tid}"
        self._files = TaskFiles(folder, keep=keep, schedstat=waits, wchan=waits, io=io)
        self.stat = self._files.first_stat
        self.name = _text(read_once(f"{folder}/comm") or b"?")
        self._run_delay_ns = self._sched()
        self._io = self._files.io()
        self._io_t_ns: int | None = None
        self._io_per_s: IoCounters | None = None
        self._t_ns: int | None = None
        self.newest: TaskReading | None = None
        """The last reading."""

    def read_name(self) -> None:
        """Read its name again: a worker is named some time after its start."""
        name = read_once(f"{self._folder}/comm")
        if name:
            self.name = _text(name)

    @property
    def start_ticks(self) -> int:
        """Start in clock ticks after boot; with the PID it names one task only."""
        return self.stat.start_ticks

    def read(self, t_ns: int, *, io: bool = True, covers_s: float | None = None) -> TaskReading | None:
        """What happened since the last reading; the first one covers no time and has rates of 0. ``None``: it ended.

        Args:
            t_ns: now.
            io: read the ``io`` counters, too; otherwise their last rate is assumed.
            covers_s: time (s) that the bytes are scaled to, at their rate; default: since the last reading.
        """
        stat = self._files.stat()
        if stat is None or stat.has_ended:
            return None
        wchan = self._wchan() if stat.state not in ("R", "T", "t") else None
        run_delay_ns = self._sched()
        span_s = 0.0 if self._t_ns is None else (t_ns - self._t_ns) / 1e9
        moved = self._moved(t_ns, span_s, covers_s, io=io or self._io_t_ns is None)
        reading = TaskReading(
            pid=self.number,
            name=self.name,
            state=stat.state,
            wait=wait_class(stat.state, wchan),
            wchan=wchan,
            cpu_frac=max(0, stat.cpu_ticks - self.stat.cpu_ticks) * TICK_S / span_s if span_s else 0.0,
            run_delay_frac=_delay(self._run_delay_ns, run_delay_ns, span_s),
            read_bytes=None if moved is None else moved.read_bytes,
            read_chars=None if moved is None else moved.read_chars,
            write_chars=None if moved is None else moved.write_chars,
        )
        self.stat, self._run_delay_ns, self._t_ns, self.newest = stat, run_delay_ns, t_ns, reading
        return reading

    def close(self) -> None:
        """Close its files. May be called again."""
        self._files.close()

    def _moved(self, t_ns: int, span_s: float, covers_s: float | None, *, io: bool) -> IoCounters | None:
        if io:
            before, self._io = self._io, self._files.io()
            if before is None or self._io is None:
                self._io_per_s = None
                return None
            since_s = span_s if self._io_t_ns is None else (t_ns - self._io_t_ns) / 1e9
            self._io_t_ns = t_ns
            grown = [max(0, new - old) for new, old in zip(self._io, before, strict=True)]
            self._io_per_s = IoCounters(*(round(count / since_s) if since_s else 0 for count in grown))
        rate = self._io_per_s
        if rate is None or not any(rate):
            return rate
        chars, written, fetched = rate
        scaled_s = span_s if covers_s is None else covers_s
        return IoCounters(round(chars * scaled_s), round(written * scaled_s), round(fetched * scaled_s))

    def _sched(self) -> int | None:
        schedstat = self._files.schedstat()
        return None if schedstat is None else schedstat.run_delay_ns

    def _wchan(self) -> str | None:
        text = self._files.wchan()
        return None if text is None else parse_wchan(text)


def _text(name: bytes) -> str:
    return name.strip().decode("utf-8", "replace")


def _delay(before_ns: int | None, after_ns: int | None, span_s: float) -> float | None:
    if before_ns is None or after_ns is None:
        return None
    return max(0, after_ns - before_ns) / 1e9 / span_s if span_s else 0.0
