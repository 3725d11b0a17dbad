"""CPU times and pressure (PSI) of the whole machine: pure parsers, and the reader that turns them into shares.

Sources: proc_stat(5); the kernel's accounting/psi. Pressure is the machine's, neighbours in other containers included.

Why not psutil: it knows no pressure, and opens ``/proc/stat`` anew for each reading of the CPU times.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pipetune.machine.proc import PROC, KeptFile, open_kept, parse_pressure_some, read_once

_PRESSURES = ("cpu", "io", "memory")
#: Room for the lines of 512 cores, which come first in ``/proc/stat``; the total alone is the first line.
_ALL_CORES_BYTES, _TOTAL_BYTES = 65536, 256


class CpuTimes(NamedTuple):
    """Clock ticks since boot, summed over the cores that were asked for."""

    busy: int
    """All but idle and iowait; also time stolen by the hypervisor, in which the core was not available."""
    idle: int
    iowait: int


class MachineShares(NamedTuple):
    """Shares of the time between two readings (%); ``None``: not measured."""

    cpu_busy_pct: float | None
    cpu_idle_pct: float | None
    cpu_iowait_pct: float | None
    psi_cpu_some_pct: float | None
    psi_io_some_pct: float | None
    psi_memory_some_pct: float | None


def parse_cpu_times(text: bytes, cores: Iterable[int] | None = None) -> CpuTimes:
    """``/proc/stat`` -> ticks of the whole machine, or of the ``cores`` given (those offline are left out).

    Raises:
        ValueError: the file has no line for any of them.
    """
    if cores is None:
        return _line_times(text)
    wanted = {b"cpu%d" % core for core in cores}
    times: list[CpuTimes] = []
    for line in text.split(b"\n"):
        if not line.startswith(b"cpu") or len(times) == len(wanted):
            break
        if line[: line.index(b" ")] in wanted:
            times.append(_line_times(line))
    if not times:
        raise ValueError(f"/proc/stat has no line for {sorted(wanted)}")
    return CpuTimes(*map(sum, zip(*times, strict=True)))


def _line_times(line: bytes) -> CpuTimes:
    name, user, nice, system, idle, iowait, irq, softirq, steal, _ = line.split(None, 9)
    if not name.startswith(b"cpu"):
        raise ValueError(f"/proc/stat begins with {name!r}")
    # The guest times in the rest are contained in user and nice.
    busy = int(user) + int(nice) + int(system) + int(irq) + int(softirq) + int(steal)
    return CpuTimes(busy, int(idle), int(iowait))


def cpu_shares(before: CpuTimes, after: CpuTimes) -> tuple[float, float, float] | None:
    """Busy, idle and iowait (%) between two readings; they sum to 100. ``None`` when no clock tick passed.

    A counter that went back counts as unchanged: proc_stat(5) warns that iowait can decrease.
    """
    busy, idle, iowait = (max(0, new - old) for old, new in zip(before, after, strict=True))
    total = busy + idle + iowait
    return (100 * busy / total, 100 * idle / total, 100 * iowait / total) if total else None


def parse_online(text: bytes) -> frozenset[int]:
    """``/proc/stat`` -> numbers of the cores that are online."""
    names = (line.split(None, 1)[0] for line in text.split(b"\n") if line.startswith(b"cpu"))
    return frozenset(int(name[3:]) for name in names if name[3:].isdigit())


class MachineReader:
    """Shares of the time since the reading before.

    Args:
        cores: the cores that count, when they are some but not all of those in ``/proc/stat``. In any other case the
            whole machine counts: a container's own ``/proc/stat`` (lxcfs) numbers its cores from 0, whatever the
            affinity mask says.
        proc: where proc is mounted.
        pressure: read the pressure files, too.
    """

    def __init__(self, cores: frozenset[int] | None = None, proc: str = PROC, *, pressure: bool = True) -> None:
        text = read_once(f"{proc}/stat") or b""
        self._cores = cores if cores and cores < parse_online(text) else None
        self._stat = open_kept(f"{proc}/stat", _TOTAL_BYTES if self._cores is None else _ALL_CORES_BYTES)
        self._pressures = [open_kept(f"{proc}/pressure/{name}") if pressure else None for name in _PRESSURES]
        self._times: CpuTimes | None = None
        self._waits_us: list[int | None] = [None] * len(_PRESSURES)
        self._t_ns = 0

    def read(self, t_ns: int) -> MachineShares:
        """Read at time ``t_ns``. The first reading has nothing to compare with: all ``None``."""
        times = None if self._stat is None else parse_cpu_times(self._stat.read(), self._cores)
        shares = cpu_shares(self._times, times) if self._times and times else None
        waits_us = [_pressure(file) for file in self._pressures]
        span_us = (t_ns - self._t_ns) / 1e3
        pressures = [_share(old, new, span_us) for old, new in zip(self._waits_us, waits_us, strict=True)]
        self._times, self._waits_us, self._t_ns = times, waits_us, t_ns
        return MachineShares(*(shares or (None, None, None)), *pressures)

    def close(self) -> None:
        """Close its files. May be called again."""
        for file in (self._stat, *self._pressures):
            if file is not None:
                file.close()


def _pressure(file: KeptFile | None) -> int | None:
    # With psi=0 on the kernel's command line the files exist, and reading them fails.
    try:
        return None if file is None else parse_pressure_some(file.read())
    except OSError:
        return None


def _share(before_us: int | None, after_us: int | None, span_us: float) -> float | None:
    if before_us is None or after_us is None or span_us <= 0:
        return None
    return min(100.0, max(0.0, 100 * (after_us - before_us) / span_us))
