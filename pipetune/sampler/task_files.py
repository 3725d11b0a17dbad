"""The files that the kernel keeps of one process or thread, held open and read again and again until it has ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pipetune.machine.proc import (
    IoCounters,
    KeptFile,
    ProcessStat,
    SchedStat,
    open_kept,
    parse_io,
    parse_process_stat,
    parse_sched_stat,
)

T = TypeVar("T")
_SCHEDSTAT, _WCHAN, _IO = "schedstat", "wchan", "io"


class TaskFiles:
    """Reads ``stat`` and, where they are asked for and readable, further files of one task.

    A task is identified by its open files and its start, so another one with a reused number is not mistaken for it.

    Args:
        folder: ``/proc/PID`` or ``/proc/PID/task/TID``.
        keep: see :class:`pipetune.machine.proc.KeptFile`.
        schedstat: waiting for cores is read, too.
        wchan: the kernel function that the task sleeps in is read, too.
        io: bytes read and written are read, too.

    Raises:
        OSError, ValueError: there is no such task.
    """

    def __init__(
        self, folder: str, *, keep: bool, schedstat: bool = True, wchan: bool = False, io: bool = True
    ) -> None:
        self._stat_file = KeptFile(f"{folder}/stat", keep=keep)
        try:
            self.first_stat = parse_process_stat(self._stat_file.read())
        except (OSError, ValueError):
            self._stat_file.close()
            raise
        self._others: dict[str, KeptFile] = {}
        for name, wanted in ((_SCHEDSTAT, schedstat), (_WCHAN, wchan), (_IO, io)):
            file = open_kept(f"{folder}/{name}", keep=keep) if wanted else None
            if file is not None:
                self._others[name] = file

    def stat(self) -> ProcessStat | None:
        """The task as it is now; ``None``: it has ended. Until its parent has waited for it, it is in state Z."""
        try:
            stat = parse_process_stat(self._stat_file.read())
        except (OSError, ValueError):
            return None
        return stat if stat.start_ticks == self.first_stat.start_ticks else None

    def schedstat(self) -> SchedStat | None:
        """Of this task alone; of a process that is its main thread. ``None``: unavailable."""
        return self._parsed(_SCHEDSTAT, parse_sched_stat)

    def wchan(self) -> bytes | None:
        """The content of ``wchan``; ``None``: unavailable."""
        return self._parsed(_WCHAN, bytes)

    def io(self) -> IoCounters | None:
        """Bytes since the task began; ``None``: unavailable, as for another user's process."""
        return self._parsed(_IO, parse_io)

    def close(self) -> None:
        """Close the files. May be called again."""
        for file in (self._stat_file, *self._others.values()):
            file.close()

    def _parsed(self, name: str, parse: Callable[[bytes], T]) -> T | None:
        file = self._others.get(name)
        if file is None:
            return None
        try:
            return parse(file.read())
        except OSError:  # opening it was allowed, reading another user's is not
            self._others.pop(name).close()
            return None
        except ValueError:  # cut short, or an unknown form
            return None
