"""Figures without a time of their own, placed by when they change; the truth is known."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from pipetune.machine.nvml.figure_spans import MIN_PERIOD_NS, FigureSpans
from pipetune.records.observation import BusySpan

S = 10**9
#: A load that is on for 3 s and off for 3 s.
HALF_S = 3.0


def is_on(t_s: float) -> bool:
    return int(t_s // HALF_S) % 2 == 0


def figure_at(t_s: float, period_s: float, phase_s: float) -> float:
    """What the driver shows: the share of the period that ended with its last update (%)."""
    update_s = (t_s - phase_s) // period_s * period_s + phase_s
    return round(sum(is_on(update_s - period_s * (n + 0.5) / 50) for n in range(50)) / 50 * 100)


def place(period_s: float, *, every_s: float = 0.1, jitter_s: float = 0.01, seed: int = 0) -> list[BusySpan]:
    random_number = random.Random(seed)
    phase_s = random_number.random() * period_s
    figures, spans, t_s = FigureSpans(), [], 30.0
    while t_s < 90:
        spans += figures.add(round(t_s * S), figure_at(t_s, period_s, phase_s))
        t_s += every_s + jitter_s * random_number.random()
    return spans


def wrong_s(spans: list[BusySpan], margin_s: float) -> float:
    """Time that is told as on or off though it was not, beyond so much of an edge (s)."""
    total_s = 0.0
    for span in spans:
        began_s, ended_s = span.t_start_ns / S + margin_s, span.t_end_ns / S - margin_s
        if span.busy_frac in (0, 1) and ended_s > began_s:
            total_s += sum(is_on(t_s) != (span.busy_frac == 1) for t_s in (began_s, ended_s))
    return total_s


@pytest.mark.parametrize("period_s", [1 / 6, 0.2, 0.25, 0.5, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_a_figure_is_placed_where_the_load_was(period_s: float, seed: int) -> None:
    spans = place(period_s, seed=seed)

    assert wrong_s(spans, margin_s=0.15) == 0
    assert sum(span.t_end_ns - span.t_start_ns for span in spans) > 0.75 * 60 * S


@pytest.mark.parametrize("every_s", [0.1, 0.5, 0.9])
def test_spans_come_in_order_and_do_not_overlap(every_s: float) -> None:
    spans = place(0.25, every_s=every_s)
    assert all(before.t_end_ns <= after.t_start_ns for before, after in pairwise(spans))
    assert all(span.t_start_ns < span.t_end_ns for span in spans)


@pytest.mark.parametrize("period_s", [1 / 6, 0.25, 1.0])
def test_figures_that_are_read_rarely_are_told_only_where_they_are_certain(period_s: float) -> None:
    spans = place(period_s, every_s=0.4, jitter_s=0.05)
    assert spans
    assert wrong_s(spans, margin_s=0.03) == 0


def test_a_figure_that_never_changes_is_about_what_every_period_allows() -> None:
    figures = FigureSpans()
    spans = [span for n in range(31) for span in figures.add(10 * S + n * S // 10, 40)]
    assert figures.period_ns is None
    assert (spans[0].t_start_ns, spans[-1].t_end_ns) == (10 * S - MIN_PERIOD_NS, 12 * S)
    assert {span.busy_frac for span in spans} == {0.4}


def test_what_happened_in_a_long_pause_is_not_known() -> None:
    figures = FigureSpans()
    for n in range(31):
        figures.add(n * S // 10, 40)
    assert figures.add(60 * S, 40) == []
    assert figures.add(60 * S + S // 10, 40) == []
