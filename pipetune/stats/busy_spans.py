"""How busy a GPU was in a stretch of time, from samples that have times of their own. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

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
    """As :func:`busy_frac_between`, by what samples say of that time alone (:func:`spans_within`).

    ``None``: that covers less than half of the time.
    """
    return busy_frac_between(spans_within(spans, began_ns, ended_ns), began_ns, ended_ns)


def spans_within(spans: Iterable[BusySpan], began_ns: int, ended_ns: int) -> list[BusySpan]:
    """What samples say of a time and of no other.

    A sample that begins before or ends later is the mean of another time as well, such as the warm-up of a candidate.
    Only one of 0 or 100 % holds for each moment that it is about, so it is cut to the time.
    """
    within = []
    for span in spans:
        start_ns, end_ns = max(span.t_start_ns, began_ns), min(span.t_end_ns, ended_ns)
        is_whole = (start_ns, end_ns) == (span.t_start_ns, span.t_end_ns)
        if end_ns > start_ns and (is_whole or span.busy_frac in (0, 1)):
            within.append(replace(span, t_start_ns=start_ns, t_end_ns=end_ns))
    return within
