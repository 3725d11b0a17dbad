"""Pairs readings with the driver's samples of a GPU's utilisation, which come up to a second late. Pure.

What the main thread does is read now, and what the GPU did then is told later. So a reading waits until the samples of
its interval are there.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from pipetune.records.observation import NVML, BusySpan, RankReading
from pipetune.stats.busy_spans import busy_frac_between

#: The driver averages over at most 1 s (nvml.h). What it has not told after twice as long, it will not tell.
_PATIENCE_NS = 2_000_000_000


class LateSamples:
    """Holds the newest readings of one rank back until their samples have come."""

    def __init__(self) -> None:
        self._waiting: deque[RankReading] = deque()
        self._spans: deque[BusySpan] = deque()

    @property
    def waiting(self) -> tuple[RankReading, ...]:
        """The readings that are held back, oldest first, each with the utilisation that was known when it was made."""
        return tuple(self._waiting)

    def add(self, reading: RankReading) -> list[RankReading]:
        """Take the next reading; return those whose samples are complete now, oldest first, with these."""
        self._spans.extend(reading.busy_spans)
        self._waiting.append(reading)
        return [self._next() for _ in range(self._complete(reading.t_ns))]

    def rest(self) -> list[RankReading]:
        """All that are held back, with the samples that there are: no more come."""
        return [self._next() for _ in range(len(self._waiting))]

    def _complete(self, now_ns: int) -> int:
        known_ns = self._spans[-1].t_end_ns if self._spans else now_ns
        count = 0
        for reading in self._waiting:
            if reading.source == NVML and max(known_ns, now_ns - _PATIENCE_NS) < reading.t_ns:
                break
            count += 1
        return count

    def _next(self) -> RankReading:
        reading = self._waiting.popleft()
        began_ns = reading.t_ns - round(1e9 * reading.interval_s)
        while self._spans and self._spans[0].t_end_ns <= began_ns:
            self._spans.popleft()
        busy_frac = busy_frac_between(self._spans, began_ns, reading.t_ns)
        if reading.source != NVML or busy_frac is None:
            return reading
        return replace(reading, busy_frac=busy_frac)
