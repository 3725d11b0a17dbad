"""How busy a GPU was, with the times that this is about: by the driver's own samples, or by its newest figure."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from pipetune.machine.nvml.calls import Calls
from pipetune.machine.nvml.figure_spans import MAX_PERIOD_NS, FigureSpans
from pipetune.machine.nvml.signals import STALE_NS, VALUE_FIELDS, Paced, share
from pipetune.records.observation import BusySpan

#: The newest sample is at most a second old, because samples are about a second at most (nvml.h), and the driver may
#: publish it a second later. One that seems older than a second more than that is stamped by another clock.
MAX_AGE_NS = 3_000_000_000
#: No sample is of the future. Both clocks are read one after the other, which a busy machine may delay.
_MAX_AHEAD_NS = 100_000_000
#: A driver that keeps samples has the first one a second after it started. One that has had none so often and for so
#: long keeps none, as those that leave sampling to the GPU's own processor. It is asked again so rarely that this costs
#: next to nothing.
_MAX_EMPTY, _EMPTY_NS, _RETRY_NS = 5, 1_000_000_000, 30_000_000_000
#: Readings of the figure that are further apart than this many intervals of the sampler are too few.
_MAX_GAP_RATIO = 1.25
#: Stretches that are kept: some minutes' worth, as many as a candidate of a sweep lasts.
_MAX_SPANS = 4096


class Sample(NamedTuple):
    """One sample of the driver's: the share (%) of the time since the sample before it."""

    stamp_us: int
    """Since 1970, by the driver's clock."""
    percent: float


class Utilisation:
    """Share of time in which any kernel ran (%).

    The driver keeps its own samples, several per second: all those since the last reading are averaged, so none is
    missed between rare readings. They come up to a second late, with the time on the clock since 1970 at which each was
    taken, and so are placed on the monotonic clock.

    Where it keeps none, its newest figure is taken, and placed by the times at which it changes
    (:class:`pipetune.machine.nvml.figure_spans.FigureSpans`). So are samples whose clock is another one.

    Args:
        calls: makes the calls.
        library: the imported ``pynvml``.
        handle: NVML's.
        clock: ns, like ``time.monotonic_ns``.
        unix: ns since 1970.
        before: read the same GPU in an earlier measurement; only the driver's pace is taken from it.
    """

    def __init__(
        self,
        calls: Calls,
        library: Any,
        handle: Any,
        *,
        clock: Callable[[], int] = time.monotonic_ns,
        unix: Callable[[], int] = time.time_ns,
        before: Utilisation | None = None,
    ) -> None:
        self._calls, self._library, self._handle = calls, library, handle
        self._clock, self._unix = clock, unix
        self.spans: deque[BusySpan] = deque(maxlen=_MAX_SPANS)
        """The newest stretches of time of which the utilisation is known, oldest first."""
        self.clock_differs_s: float | None = None
        """How far the driver's clock is behind this machine's, where samples cannot be placed by it (s)."""
        self._reads, self._first_ns, self._last_ns = 0, 0, 0
        self._figures: FigureSpans = FigureSpans(None if before is None else before._figures)
        self._seen_us = 0
        self._asked_ns: int | None = None
        self._fresh: tuple[int, float] | None = None
        self._empty, self._empty_since_ns, self._retry_ns = 0, 0, 0

    def read(self, now_ns: int) -> float | None:
        """Percent; ``None``: unavailable, as on a MIG slice."""
        if now_ns >= self._retry_ns:
            since_ns, self._asked_ns = self._asked_ns, now_ns
            new, before_us = self._new_samples()
            self._count_empty(now_ns, empty=not new)
            if new:
                self._fresh = (now_ns, sum(sample.percent for sample in new) / len(new))
                self._place(new, before_us, since_ns)
        if self._fresh is not None and now_ns - self._fresh[0] <= STALE_NS:
            if self.clock_differs_s is not None:
                self._keep(self._figures.add(self._clock(), self._fresh[1]))
            return self._fresh[1]
        rates = self._calls.ask("nvmlDeviceGetUtilizationRates", self._handle)
        if rates is None:
            return None
        self._reads, self._first_ns, self._last_ns = self._reads + 1, self._first_ns or now_ns, now_ns
        self._keep(self._figures.add(self._clock(), share(rates.gpu)))
        return share(rates.gpu)

    def describe_problem(self, interval_s: float, paced: Paced[float | None]) -> str | None:
        """Why the utilisation is known worse than readings every ``interval_s`` (s) would tell it; ``None``: it is not.

        Args:
            interval_s: the sampler's.
            paced: reads it, as often as its cost allows.
        """
        if self.clock_differs_s is not None:
            side = "behind" if self.clock_differs_s > 0 else "ahead of"
            return (
                f"the driver stamps the GPU's utilisation by a clock that is {abs(self.clock_differs_s):.1f} s {side} "
                "this machine's, so it is placed by when it was read"
            )
        if self._reads < 2 or paced.affordable_s <= interval_s:
            return None
        gap_s = (self._last_ns - self._first_ns) / 1e9 / (self._reads - 1)
        if gap_s <= _MAX_GAP_RATIO * interval_s:
            return None
        return (
            f"NVML takes {1000 * paced.cost_s:.1f} ms to tell the GPU's utilisation, so it was read every "
            f"{gap_s:.2f} s instead of every {interval_s:g} s"
        )

    def _new_samples(self) -> tuple[list[Sample], int]:
        """Those since the last reading, oldest first, and the stamp before them; of the first answer the newest one."""
        seen_us = self._seen_us
        answer = self._calls.ask(
            "nvmlDeviceGetSamples", self._handle, self._library.NVML_GPU_UTILIZATION_SAMPLES, seen_us
        )
        kind, samples = answer or (0, ())
        # Each is cut by itself: one garbage sample of billions must not become the mean.
        new = sorted(
            Sample(s.timeStamp, share(float(getattr(s.sampleValue, VALUE_FIELDS[kind]))))
            for s in samples
            if s.timeStamp > seen_us
        )
        if not new:
            return new, seen_us
        self._seen_us = new[-1].stamp_us
        # What the driver had buffered before the first reading belongs to an earlier time.
        return (new, seen_us) if seen_us else (new[-1:], new[-2:][0].stamp_us)

    def _count_empty(self, now_ns: int, *, empty: bool) -> None:
        """Ask rarely where there never is a sample, which would double what a reading costs."""
        if not empty or (self._fresh is not None and now_ns - self._fresh[0] <= STALE_NS):
            self._empty = 0
            return
        if not self._empty:
            self._empty_since_ns = now_ns
        self._empty += 1
        if self._empty >= _MAX_EMPTY and now_ns - self._empty_since_ns >= _EMPTY_NS:
            self._retry_ns = now_ns + _RETRY_NS

    def _place(self, new: list[Sample], before_us: int, since_ns: int | None) -> None:
        # Both clocks are read at the same moment: a slow call before would move the samples by what it took.
        now_ns, unix_ns = self._clock(), self._unix()
        behind_ns = unix_ns - 1000 * new[-1].stamp_us
        # The newest sample has come since the driver was asked before, unless it was never asked.
        waited_ns = 0 if since_ns is None else now_ns - since_ns
        if not -_MAX_AHEAD_NS <= behind_ns <= MAX_AGE_NS + waited_ns:
            self.clock_differs_s = None if since_ns is None else behind_ns / 1e9
            return
        self.clock_differs_s = None
        spans = []
        for stamp_us, percent in new:
            if stamp_us > before_us:
                end_ns = now_ns - unix_ns + 1000 * stamp_us
                length_ns = min(1000 * (stamp_us - before_us), MAX_PERIOD_NS)
                spans.append(BusySpan(t_start_ns=end_ns - length_ns, t_end_ns=end_ns, busy_frac=percent / 100))
            before_us = stamp_us
        self._keep(spans)

    def _keep(self, spans: Iterable[BusySpan]) -> None:
        for span in spans:
            # The clock since 1970 may have been set back, and figures may have stood in for samples.
            start_ns = max(span.t_start_ns, self.spans[-1].t_end_ns) if self.spans else span.t_start_ns
            if span.t_end_ns > start_ns:
                self.spans.append(BusySpan(t_start_ns=start_ns, t_end_ns=span.t_end_ns, busy_frac=span.busy_frac))
