"""The sampler's readings of the timed phase, and what their values come to over it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pipetune.records.observation import Reading

#: Time between two readings of what NVML is asked for twice a second (ns), and a little more.
_SETTLED_NS = 500_000_000


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

    def settled_mean(self, value: Callable[[Reading], float | None]) -> float | None:
        """Mean over time of what is read twice a second and is itself a mean since the reading before.

        What is known in the first half second is about the time before the phase; only in a phase that is no longer
        does it count all the same.
        """
        later = ReadingWindow(self.readings, self.began_ns + _SETTLED_NS, self.ended_ns)
        settled = later.mean(value)
        return self.mean(value) if settled is None else settled

    def amount_per_s(self, value: Callable[[Reading], float | None]) -> float | None:
        """Rate of what passed since the reading before, which some readings tell: between the first and last of them.

        ``None``: fewer than two have it.
        """
        told = [(r.t_ns, v) for r in self.readings if (v := value(r)) is not None]
        if len(told) < 2 or told[-1][0] == told[0][0]:
            return None
        return sum(v for _, v in told[1:]) / ((told[-1][0] - told[0][0]) / 1e9)

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
