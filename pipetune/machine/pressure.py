"""Pressure stall information (PSI): how often some task waited for a core, for storage or for memory.

Source: the kernel's accounting/psi. The kernel keeps it for the machine, neighbours in other containers included, and
for each control group of version 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pipetune.machine.proc import KeptFile, open_kept

#: Names of the files, in the order of :class:`Pressure`.
RESOURCES = ("cpu", "io", "memory")


class Pressure(NamedTuple):
    """Share of the time between two readings in which some task waited for the resource (%); ``None``: unavailable."""

    psi_cpu_some_pct: float | None = None
    psi_io_some_pct: float | None = None
    psi_memory_some_pct: float | None = None


def parse_pressure_some(text: bytes) -> int | None:
    """A pressure file -> µs in which *some* task waited, since boot; ``None`` in an unknown form."""
    line = text.split(b"\n", 1)[0]
    _, equals, total = line.rpartition(b" total=")
    return int(total) if equals and line.startswith(b"some ") and total.isdigit() else None


class PressureReader:
    """Reads the pressure of one machine or control group again and again.

    Args:
        paths: the files of :data:`RESOURCES`; empty: nothing is read.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        # With psi=0 on the kernel's command line the files are there, and reading them is refused.
        self._files: list[KeptFile | None] = [open_kept(path, probe=True) for path in paths] or [None] * len(RESOURCES)
        self._before: tuple[int, list[int | None]] | None = None

    @property
    def complete(self) -> bool:
        """Whether the kernel keeps all three."""
        return None not in self._files

    def read(self, t_ns: int) -> Pressure:
        """Read at time ``t_ns``. The first reading has nothing to compare with: all ``None``."""
        waits_us = [None if file is None else _waited_us(file) for file in self._files]
        before, self._before = self._before, (t_ns, waits_us)
        if before is None or t_ns <= before[0]:
            return Pressure()
        span_us = (t_ns - before[0]) / 1e3
        return Pressure(*(_percent(old, new, span_us) for old, new in zip(before[1], waits_us, strict=True)))

    def close(self) -> None:
        """Close the files. May be called again."""
        for file in self._files:
            if file is not None:
                file.close()


def _waited_us(file: KeptFile) -> int | None:
    try:
        return parse_pressure_some(file.read())
    except OSError:
        return None


def _percent(before_us: int | None, after_us: int | None, span_us: float) -> float | None:
    if before_us is None or after_us is None:
        return None
    return min(100.0, max(0.0, 100 * (after_us - before_us) / span_us))
