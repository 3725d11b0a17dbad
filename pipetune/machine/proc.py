"""One process as Linux shows it in ``/proc/PID``: pure parsers (bytes in, frozen values out) and thin readers.

Every reader takes the folder where proc is mounted, so that the tests can build one. Fields are counted as in
proc_pid_stat(5), proc_pid_io(5) and proc_pid_status(5). The values are named tuples: they are made for every process
at every tick, and a frozen dataclass takes more than twice as long to fill.

Why not psutil here: on 112 processes its ``children(recursive=True)`` takes 3.9 ms and :func:`tree_pids` 0.24 ms, it
gives a process's start as wall-clock time, which shifts with the clock, and it does not read ``schedstat``.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator, Mapping
from typing import NamedTuple

PROC = "/proc"
#: Length of the kernel's clock tick (s), nearly always 0.01.
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class ProcessStat(NamedTuple):
    """The fields of ``/proc/PID/stat`` that the sampler needs. Times and faults cover all threads of the process."""

    state: str
    """One letter: R running, S sleeping, D disk sleep, Z ended but not yet waited for, …"""
    parent: int
    minor_faults: int
    cpu_ticks: int
    """User and system time, in units of :data:`TICK_S`. Whole numbers, so that sums of them never fall by rounding."""
    threads: int
    start_ticks: int
    """Start in clock ticks after boot. PIDs are reused; a PID with its start names one process only."""
    rss_bytes: int
    waited_ticks: int = 0
    """``cpu_ticks`` of the children that it has waited for, with those that they had waited for (times(2))."""

    @property
    def has_ended(self) -> bool:
        """It runs no more; its parent may not have waited for it yet."""
        return self.state in ("Z", "X", "x")


class SchedStat(NamedTuple):
    """``schedstat`` of one thread; that of a process is its main thread's."""

    run_delay_ns: int
    """Time in which it was runnable and waited for a core."""
    switches: int
    """Times that it was scheduled: its voluntary plus involuntary context switches."""


def parse_process_stat(text: bytes) -> ProcessStat:
    """``/proc/PID/stat`` -> its values.

    The command name in field 2 is whatever the process calls itself, spaces and parentheses included, so the fields
    are counted from its last closing parenthesis.

    Raises:
        ValueError: the text is cut short or has another form.
    """
    fields = text[text.rindex(b")") + 1 :].split(None, 22)
    if len(fields) < 22:
        raise ValueError(f"cut short: {text!r}")
    # In the order of the class, without names: half the time, in the sampler's most frequent call.
    return ProcessStat(
        fields[0].decode("ascii"),
        int(fields[1]),
        int(fields[7]),
        int(fields[11]) + int(fields[12]),
        int(fields[17]),
        int(fields[19]),
        max(0, int(fields[21])) * _PAGE_BYTES,
        int(fields[13]) + int(fields[14]),
    )


def parse_sched_stat(text: bytes) -> SchedStat:
    """``schedstat`` -> its values (the kernel's scheduler/sched-stats: on a core ns, run delay ns, timeslices).

    Raises:
        ValueError: an unknown form.
    """
    _, run_delay_ns, switches = text.split()
    return SchedStat(int(run_delay_ns), int(switches))


def parse_context_switches(text: bytes) -> int | None:
    """``/proc/PID/status`` -> voluntary + involuntary context switches of the main thread; ``None`` when not given."""
    lines = [line for line in text.split(b"\n") if b"voluntary_ctxt_switches:" in line]
    return sum(int(line.split()[1]) for line in lines) if lines else None


class IoCounters(NamedTuple):
    """The part of ``/proc/PID/io`` that shows a loader's work (proc_pid_io(5)), in bytes since the process began."""

    read_chars: int = 0
    """Bytes that read(2) and its like returned, from storage or not."""
    write_chars: int = 0
    read_bytes: int = 0
    """Bytes fetched from storage for this process; exact only for block devices."""


def parse_io(text: bytes) -> IoCounters:
    """``/proc/PID/io`` -> its counters; a missing one is 0.

    Raises:
        ValueError: an unknown form.
    """
    words = text.split()
    values = dict(zip(words[::2], words[1::2], strict=False))
    return IoCounters(int(values.get(b"rchar:", 0)), int(values.get(b"wchar:", 0)), int(values.get(b"read_bytes:", 0)))


def read_once(path: str) -> bytes | None:
    """Content of a small file; ``None`` where it is absent, unreadable for this user, or its process has ended."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(file, 65536)
        finally:
            os.close(file)
    except OSError:
        return None


def read_process_stat(pid: int, proc: str = PROC) -> ProcessStat | None:
    """The process as it is now; ``None`` when there is none."""
    text = read_once(f"{proc}/{pid}/stat")
    return parse_process_stat(text) if text else None


def own_cpu_s() -> float:
    """CPU time of this process and of its children that have ended (s)."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    return own.ru_utime + own.ru_stime + ended_children_cpu_s()


def ended_children_cpu_s() -> float:
    """CPU time of this process's children that have ended (s)."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime


def listed_pids(proc: str = PROC) -> set[int]:
    """PIDs of all processes that this one can see."""
    return {int(name) for name in os.listdir(proc) if name.isdecimal()}


def read_children(pid: int, proc: str = PROC, *, threads: int | None = None) -> list[int] | None:
    """PIDs of a process's children.

    ``None`` where the kernel was built without ``/proc/PID/task/TID/children`` (proc_pid_task(5)). That file lists
    what one *thread* forked, so there is one to read per thread; ``threads`` = 1 saves listing them. A child may be
    missing when another one ends during the read; the next read has it.
    """
    names = [str(pid)] if threads == 1 else _names(f"{proc}/{pid}/task")
    children: list[int] = []
    known = not names
    for name in names:
        text = read_once(f"{proc}/{pid}/task/{name}/children")
        if text is not None:
            known = True
            children += map(int, text.split())
    if not known and os.path.exists(f"{proc}/{pid}/task/{pid}/stat"):
        return None
    return children


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def scan_children(proc: str = PROC) -> dict[int, list[int]]:
    """Parent -> children for all processes, from field 4 of each ``stat``: for kernels without ``children`` files."""
    found: dict[int, list[int]] = {}
    for pid in listed_pids(proc):
        stat = read_process_stat(pid, proc)
        if stat is not None:
            found.setdefault(stat.parent, []).append(pid)
    return found


def tree_pids(pid: int, proc: str = PROC, *, children: Mapping[int, list[int]] | None = None) -> list[int]:
    """A process and all its descendants, parents first; empty when it does not exist.

    Args:
        pid: the process.
        proc: where proc is mounted.
        children: parent -> children, where that is known (:class:`pipetune.machine.parents.Parents`).
    """
    # The kernel sums up all threads of a process for its ``stat``, so it is not read where being there is all.
    if not (read_process_stat(pid, proc) if children is None else os.path.exists(f"{proc}/{pid}/stat")):
        return []
    if children is None and read_children(pid, proc) is None:
        children = scan_children(proc)
    return list(_walk(pid, proc, children))


def _walk(root: int, proc: str, scanned: Mapping[int, list[int]] | None) -> Iterator[int]:
    waiting, seen = [root], {root}
    while waiting:
        pid = waiting.pop(0)
        yield pid
        children = scanned.get(pid, []) if scanned is not None else read_children(pid, proc) or []
        for child in children:
            if child not in seen:
                seen.add(child)
                waiting.append(child)


class KeptFile:
    """A file that is read repeatedly through one open descriptor, two to five times cheaper than opening it each time.

    A descriptor under ``/proc/PID`` belongs to that process, not to its number: once the process is gone, reading
    fails, even when the PID is in use again.

    Args:
        path: opened at once; OSError where it is absent or unreadable for this user.
        size: bytes of it that matter.
        keep: ``False`` opens it anew for each read, for when descriptors are scarce.
    """

    __slots__ = ("_file", "_path", "_size")

    def __init__(self, path: str, size: int = 1024, *, keep: bool = True) -> None:
        self._path, self._size = path, size
        self._file: int | None = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        if not keep:
            self.close()

    def read(self) -> bytes:
        """The content as it is now; OSError where the process behind it has ended."""
        if self._file is not None:
            return os.pread(self._file, self._size, 0)
        file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(file, self._size, 0)
        finally:
            os.close(file)

    def read_all(self) -> bytes:
        """The whole content of a kept file; the kernel returns about a page per read."""
        if self._file is None:
            return self.read()
        content = b""
        while part := os.pread(self._file, self._size, len(content)):
            content += part
        return content

    def close(self) -> None:
        """Close the file. May be called again."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def open_kept(path: str, size: int = 1024, *, keep: bool = True, probe: bool = False) -> KeptFile | None:
    """A :class:`KeptFile`; ``None`` where it is absent or unreadable for this user.

    Args:
        path: of the file.
        size: bytes of it that matter.
        keep: see :class:`KeptFile`.
        probe: read it once: some files can be opened, and reading them fails.
    """
    try:
        file = KeptFile(path, size, keep=keep)
    except OSError:
        return None
    if probe:
        try:
            file.read()
        except OSError:
            file.close()
            return None
    return file
