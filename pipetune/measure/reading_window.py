"""The sampler's readings of the timed phase, and what their values come to over it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

from pipetune.records.observation import Reading

#: Batches that the readings of the utilisation are cut into, for an interval.
_UTIL_BATCHES = 10


class ReadingWindow:
    """The sampler's readings of the timed phase."""

    def __init__(self, readings: Sequence[Reading], began_ns: int, ended_ns: int) -> None:
        self.began_ns, self.ended_ns = began_ns, ended_ns
        self.readings = [r for r in readings if began_ns <= r.t_ns <= ended_ns]

    def mean(self, value: Callable[[Reading], float | None]) -> float | None:
        """Mean over time; ``None`` when no reading has the value."""
        known = [(v, r.interval_s) for r in self.readings if (v := value(r)) is not None]
        total = sum(weight for _, weight in known)
        return sum(v * weight for v, weight in known) / total if total > 0 else None

    def gpu_utilisation(self) -> list[float]:
        """NVML's utilisation (%) in ten batches, because neighbours resemble each other; of fewer readings one."""
        values = [r.gpu.util_pct for r in self.readings if r.gpu is not None and r.gpu.util_pct is not None]
        size = len(values) // _UTIL_BATCHES
        return [fmean(values[n * size : (n + 1) * size]) for n in range(_UTIL_BATCHES)] if size else values[:1]

    def maximum(self, value: Callable[[Reading], int | None]) -> int | None:
        """The maximum; ``None`` when no reading has it."""
        return max((v for r in self.readings if (v := value(r)) is not None), default=None)

    def tree_rate(self, value: Callable[[Any], float | None]) -> float | None:
        """Increase per second of a counter of the process tree, between its first and last known reading."""
        known = [(r.t_ns, v) for r in self.readings if r.tree is not None and (v := value(r.tree)) is not None]
        if len(known) < 2 or known[-1][0] == known[0][0]:
            return None
        return max(0.0, (known[-1][1] - known[0][1]) / ((known[-1][0] - known[0][0]) / 1e9))

    def cost(self) -> float:
        """The sampler's own CPU seconds per second."""
        total = sum(r.interval_s for r in self.readings)
        return sum(r.tick_cost_s for r in self.readings) / total if total > 0 else 0.0
