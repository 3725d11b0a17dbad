"""Places figures of a GPU's utilisation that come without a time of their own. Pure.

A driver that keeps no samples has one figure: the share of a period that it does not name, "between 1 second and 1/6
second depending on the product" (nvml.h, nvmlUtilization_t), and that ended when the figure was last updated. A figure
that is read now can be about what ran two seconds ago. Two things narrow that down:

- Where figures are read often enough, their changes show when the driver updates them, and how often. Each update is
  then a stretch of time that is as long as the period and ends at the update.
- Where they are not, or where no figure changes, only what holds for every period that is possible is told: a figure
  that stays the same is also right for what lies between its earliest and its latest possible stretch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from pipetune.records.observation import BusySpan

#: The longest and the shortest period that a figure is about (nvml.h).
MAX_PERIOD_NS, MIN_PERIOD_NS = 1_000_000_000, 166_666_667
#: Times between changes that are remembered, and how many of the shortest ones tell the period.
_MAX_HOLDS, _MIN_HOLDS = 32, 3
#: How far the period can be off, as a share of it.
_PERIOD_ERROR = 0.15
#: A figure that came twice in a row lasts for two periods, so times of up to this many periods count as one.
_ONE_PERIOD = 1.5


class FigureSpans:
    """Turns figures, in the order in which they are read, into the stretches of time that they are about.

    Args:
        before: placed the figures of the same GPU in an earlier measurement. The driver's pace is still its pace, which
            a load that never changes does not show.
    """

    def __init__(self, before: FigureSpans | None = None) -> None:
        self._percent: float | None = None
        self._since_ns = self._read_ns = self._told_ns = 0
        self._update_ns: int | None = None
        self._changed_ns: int | None = None
        self._holds_ns: deque[int] = deque(() if before is None else before._holds_ns, maxlen=_MAX_HOLDS)

    @property
    def period_ns(self) -> int | None:
        """Time between two updates of the figure; ``None``: too few changes were seen."""
        if len(self._holds_ns) < _MIN_HOLDS:
            return None
        limit_ns = _ONE_PERIOD * min(self._holds_ns) + MIN_PERIOD_NS / 2
        single = [hold_ns for hold_ns in self._holds_ns if hold_ns <= limit_ns]
        return min(MAX_PERIOD_NS, sum(single) // len(single)) if len(single) >= _MIN_HOLDS else None

    def add(self, t_ns: int, percent: float) -> list[BusySpan]:
        """Take the figure (%) that was read at ``t_ns``; return what has become certain, oldest first."""
        gap_ns = t_ns - self._read_ns
        if self._percent is None or gap_ns > MAX_PERIOD_NS:  # what happened in between is unknown
            self._start_anew(t_ns, percent)
            return []
        often = gap_ns <= MIN_PERIOD_NS
        changed_ns = self._read_ns + gap_ns // 2
        self._read_ns = t_ns
        if percent == self._percent:
            period_ns = self.period_ns if often else None
            if period_ns is None or self._update_ns is None:
                return list(self._tell_certain(t_ns, gap_ns))
            return list(self._tell_repeats(t_ns - gap_ns, period_ns))
        return list(self._tell_change(t_ns, percent, changed_ns, often=often))

    def _start_anew(self, t_ns: int, percent: float) -> None:
        self._percent, self._since_ns, self._read_ns = percent, t_ns, t_ns
        self._update_ns = self._changed_ns = None

    def _tell_change(self, t_ns: int, percent: float, changed_ns: int, *, often: bool) -> Iterator[BusySpan]:
        """The updates until this one, and this one, where it is known how often they come."""
        if often and self._changed_ns is not None:
            self._holds_ns.append(changed_ns - self._changed_ns)
        period_ns, update_ns = self.period_ns if often else None, self._update_ns
        if period_ns is None or update_ns is None:
            self._percent = percent
        else:
            count = max(1, round((changed_ns - update_ns) / period_ns))
            for number in range(1, count):
                yield from self._tell(update_ns, update_ns + number * (changed_ns - update_ns) // count)
            self._percent = percent
            yield from self._tell(changed_ns - (changed_ns - update_ns) // count, changed_ns)
        self._since_ns = t_ns
        # Only what two readings enclose closely says when the driver updated it.
        self._changed_ns = self._update_ns = changed_ns if often else None

    def _tell_repeats(self, before_ns: int, period_ns: int) -> Iterator[BusySpan]:
        """The updates that brought no change, once the next change cannot be the one of them that is due."""
        assert self._update_ns is not None
        while self._update_ns + round((1 + _PERIOD_ERROR) * period_ns) <= before_ns:
            yield from self._tell(self._update_ns, self._update_ns + period_ns)
            self._update_ns += period_ns

    def _tell_certain(self, t_ns: int, gap_ns: int) -> Iterator[BusySpan]:
        """What the figure is about, whichever period it has."""
        shortest_ns = min(self._holds_ns, default=MAX_PERIOD_NS)
        longest_ns = min(MAX_PERIOD_NS, shortest_ns + min(gap_ns, MIN_PERIOD_NS))
        yield from self._tell(self._since_ns - MIN_PERIOD_NS, t_ns - longest_ns)

    def _tell(self, start_ns: int, end_ns: int) -> Iterator[BusySpan]:
        start_ns = max(start_ns, self._told_ns)
        if self._percent is not None and end_ns > start_ns:
            self._told_ns = end_ns
            yield BusySpan(t_start_ns=start_ns, t_end_ns=end_ns, busy_frac=self._percent / 100)
