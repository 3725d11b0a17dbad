"""How busy a GPU was, by the driver's own samples, with the times that they are about."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

from pipetune.machine.nvml.calls import Calls
from pipetune.machine.nvml.signals import STALE_NS, VALUE_FIELDS, share
from pipetune.records.observation import BusySpan

#: The longest time that a sample is about (nvml.h). One that seems to be older than a minute is of another clock.
_SAMPLE_NS, _OLDEST_NS = 1_000_000_000, 60_000_000_000
#: Samples that are kept: some minutes' worth, as many as a candidate of a sweep lasts.
_MOST_SPANS = 4096


class Utilisation:
    """Share of time in which any kernel ran (%).

    The driver keeps its own samples, several per second: all those since the last reading are averaged, so none is
    missed between rare readings. Where it keeps none, its newest figure (over 1/6 to 1 s, by product) is taken.

    They come up to a second late, with the time on the clock since 1970 at which each was taken: so each is also kept
    as a stretch of the monotonic clock.
    """

    def __init__(self, calls: Calls, library: Any, handle: Any, unix: Callable[[], int] = time.time_ns) -> None:
        self._calls, self._library, self._handle, self._unix = calls, library, handle, unix
        self.spans: deque[BusySpan] = deque(maxlen=_MOST_SPANS)
        """The newest samples that have a time, oldest first."""
        self._seen_us = 0
        self._fresh: tuple[int, float] | None = None

    def read(self, now_ns: int) -> float | None:
        """Percent; ``None``: unavailable, as on a MIG slice."""
        answer = self._calls.ask(
            "nvmlDeviceGetSamples", self._handle, self._library.NVML_GPU_UTILIZATION_SAMPLES, self._seen_us
        )
        if answer is not None:
            kind, samples = answer
            # Each is cut by itself: one garbage sample of billions must not become the mean.
            new = sorted(
                (s.timeStamp, share(float(getattr(s.sampleValue, VALUE_FIELDS[kind]))))
                for s in samples
                if s.timeStamp > self._seen_us
            )
            if new:
                if not self._seen_us:
                    # What the driver had buffered before the first reading belongs to an earlier time.
                    self._seen_us, new = new[-2:][0][0], new[-1:]
                self._keep(new, now_ns)
                self._seen_us = new[-1][0]
                self._fresh = (now_ns, sum(value for _, value in new) / len(new))
        if self._fresh is not None and now_ns - self._fresh[0] <= STALE_NS:
            return self._fresh[1]
        rates = self._calls.ask("nvmlDeviceGetUtilizationRates", self._handle)
        return None if rates is None else share(rates.gpu)

    def _keep(self, new: list[tuple[int, float]], now_ns: int) -> None:
        ahead_ns = self._unix() - now_ns
        before_us = self._seen_us
        for stamp_us, percent in new:
            end_ns = 1000 * stamp_us - ahead_ns
            # On another clock than we think, or one that was set meanwhile, its time says nothing.
            if stamp_us > before_us and -_OLDEST_NS < end_ns - now_ns < _SAMPLE_NS:
                length_ns = min(1000 * (stamp_us - before_us), _SAMPLE_NS)
                self.spans.append(BusySpan(t_start_ns=end_ns - length_ns, t_end_ns=end_ns, busy_frac=percent / 100))
            before_us = stamp_us
