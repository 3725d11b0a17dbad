"""How busy the machine's cores are, and its pressure (PSI): a pure parser of CPU times, and the reader of both.

Source: proc_stat(5). Pressure is the machine's, neighbours in other containers included.

Why not psutil: it knows no pressure, and opens ``/proc/stat`` anew for each reading of the CPU times.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pipetune.machine.pressure import RESOURCES, PressureReader
from pipetune.machine.proc import PROC, open_kept, read_once
from pipetune.records.observation import MachineLoad

#: Room for the lines of 512 cores, which come first in ``/proc/stat``; the total alone is the first line.
_ALL_CORES_BYTES, _TOTAL_BYTES = 65536, 256


class CpuTimes(NamedTuple):
    """Clock ticks since boot, summed over the cores that count."""

    busy: int
    """All but idle and iowait; also time stolen by the hypervisor, in which the core was not available."""
    idle: int
    iowait: int


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
    """Reads how busy the cores were since the last reading, and the pressure.

    Args:
        cores: the cores that count, when they are some but not all of those in ``/proc/stat``. In any other case the
            whole machine counts: a container's own ``/proc/stat`` (lxcfs) numbers its cores from 0, whatever the
            affinity mask says.
        proc: where proc is mounted.
        pressure: read the pressure files, too.
    """

    def __init__(self, cores: frozenset[int] | None = None, proc: str = PROC, *, pressure: bool = True) -> None:
        online = parse_online(read_once(f"{proc}/stat") or b"")
        self._cores = cores if cores and cores < online else None
        self.counted = len(self._cores or online) or None
        """Cores that count; ``None``: unknown."""
        self._stat = open_kept(f"{proc}/stat", _TOTAL_BYTES if self._cores is None else _ALL_CORES_BYTES)
        self._pressure = PressureReader([f"{proc}/pressure/{name}" for name in RESOURCES] if pressure else ())
        self._times: CpuTimes | None = None
        self._t_ns: int | None = None

    def read(self, t_ns: int) -> MachineLoad:
        """Read at time ``t_ns``. The first reading covers no time, and all its shares are ``None``."""
        times = None if self._stat is None else parse_cpu_times(self._stat.read(), self._cores)
        busy, idle, iowait = (cpu_shares(self._times, times) if self._times and times else None) or (None, None, None)
        pressure = self._pressure.read(t_ns)
        before_ns, self._t_ns, self._times = self._t_ns, t_ns, times
        return MachineLoad(
            t_ns=t_ns,
            interval_s=0.0 if before_ns is None else (t_ns - before_ns) / 1e9,
            cpu_busy_pct=busy,
            cpu_idle_pct=idle,
            cpu_iowait_pct=iowait,
            **pressure._asdict(),
        )

    def close(self) -> None:
        """Close its files. May be called again."""
        if self._stat is not None:
            self._stat.close()
        self._pressure.close()
