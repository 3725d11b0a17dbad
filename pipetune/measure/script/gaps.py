"""Readings of a script as if the epochs that were measured followed each other at once. Pure.

What a script does between two epochs is left out of its steps (:mod:`pipetune.hook.epochs`), and has to be left out of
the sampler's readings alike: an evaluation uses cores, and reads files.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pipetune.records.observation import BusySpan, Reading

#: Totals in a reading of a process tree.
TREE_TOTALS = ("cpu_s", "run_delay_s", "read_bytes", "minor_faults", "context_switches")

#: Beginning and end of each part that is left out (ns), in their order.
Spans = Sequence[tuple[int, int]]


def readings_without(readings: Sequence[Reading], spans: Spans) -> list[Reading]:
    """The readings outside of these spans, each as much earlier as was left out before it, with totals that have not
    grown meanwhile: what a total was at a span's ends lies on a line between two readings."""
    if not spans:
        return list(readings)
    growths = {name: _growths(readings, spans, _total_of_tree(name)) for name in TREE_TOTALS}
    joules = _growths(readings, spans, lambda r: None if r.gpu is None else r.gpu.energy_j)
    return [_shifted(r, spans, growths, joules) for r in readings if not _is_within(r.t_ns, spans)]


def busy_without(busy: Sequence[BusySpan], spans: Spans) -> tuple[BusySpan, ...]:
    """The GPU's busy spans that lie outside, each as much earlier as was left out before it."""
    outside = [one for one in busy if not any(a < one.t_end_ns and b > one.t_start_ns for a, b in spans)]
    shifts = [_left_out_ns(one.t_start_ns, spans) for one in outside]
    return tuple(
        replace(one, t_start_ns=one.t_start_ns - shift, t_end_ns=one.t_end_ns - shift)
        for one, shift in zip(outside, shifts, strict=True)
    )


def _total_of_tree(name: str) -> Callable[[Reading], float | None]:
    return lambda reading: None if reading.tree is None else getattr(reading.tree, name)


def _is_within(t_ns: int, spans: Spans) -> bool:
    return any(began < t_ns < ended for began, ended in spans)


def _left_out_ns(t_ns: int, spans: Spans) -> int:
    return sum(ended - began for began, ended in spans if ended <= t_ns)


def _growths(readings: Sequence[Reading], spans: Spans, value: Callable[[Reading], float | None]) -> list[float]:
    """By how much a total grew within each span."""
    told = [(r.t_ns, float(v)) for r in readings if (v := value(r)) is not None]
    times = [t_ns for t_ns, _ in told]

    def at(t_ns: int) -> float:
        after = bisect_right(times, t_ns)
        if after == 0 or after == len(told):
            return told[0 if after == 0 else -1][1]
        (t_before, before), (t_after, later) = told[after - 1], told[after]
        return before + (later - before) * (t_ns - t_before) / (t_after - t_before)

    return [at(ended) - at(began) if told else 0.0 for began, ended in spans]


def _shifted(reading: Reading, spans: Spans, growths: dict[str, list[float]], joules: list[float]) -> Reading:
    passed = sum(1 for _, ended in spans if ended <= reading.t_ns)

    def less(total: Any, grown: list[float]) -> Any:
        return None if total is None else type(total)(total - sum(grown[:passed]))

    tree = reading.tree
    if tree is not None:
        tree = replace(tree, **{name: less(getattr(tree, name), growths[name]) for name in TREE_TOTALS})
    gpu = reading.gpu
    if gpu is not None:
        gpu = replace(gpu, energy_j=less(gpu.energy_j, joules))
    return replace(reading, t_ns=reading.t_ns - _left_out_ns(reading.t_ns, spans), tree=tree, gpu=gpu)
