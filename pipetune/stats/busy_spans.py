"""How busy a GPU was in a stretch of time, from samples that have times of their own. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from pipetune.records.observation import BusySpan

#: Samples that cover less than this share of the time do not stand for it.
_MIN_COVERED = 0.5


def busy_frac_between(spans: Iterable[BusySpan], began_ns: int, ended_ns: int) -> float | None:
    """Share of a time in which a GPU was busy; ``None``: its samples cover less than half of that time."""
    covered_ns = busy_ns = 0.0
    for span in spans:
        inside_ns = min(span.t_end_ns, ended_ns) - max(span.t_start_ns, began_ns)
        if inside_ns > 0:
            covered_ns += inside_ns
            busy_ns += inside_ns * span.busy_frac
    return busy_ns / covered_ns if covered_ns > 0 and covered_ns >= _MIN_COVERED * (ended_ns - began_ns) else None


def busy_frac_within(spans: Iterable[BusySpan], began_ns: int, ended_ns: int) -> float | None:
    """As :func:`busy_frac_between`, by samples that lie in that time as a whole.

    One that begins before is the mean of another time as well, such as the warm-up of a candidate. ``None``: those that
    lie within cover less than half of the time.
    """
    return busy_frac_between(spans_within(spans, began_ns, ended_ns), began_ns, ended_ns)


def spans_within(spans: Iterable[BusySpan], began_ns: int, ended_ns: int) -> list[BusySpan]:
    """The samples that lie within a time as a whole."""
    return [span for span in spans if began_ns <= span.t_start_ns and span.t_end_ns <= ended_ns]
