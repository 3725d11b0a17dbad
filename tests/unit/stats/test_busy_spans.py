"""What samples with times of their own say of a phase, and what they say of another time."""

from __future__ import annotations

import pytest

from pipetune.records.observation import BusySpan
from pipetune.stats.busy_spans import busy_frac_within, spans_within


def span(start_ns: int, end_ns: int, busy_frac: float) -> BusySpan:
    return BusySpan(t_start_ns=start_ns, t_end_ns=end_ns, busy_frac=busy_frac)


def test_a_mean_of_another_time_as_well_says_nothing_of_a_phase() -> None:
    spans = [span(0, 60, 0.9), span(60, 120, 0.4), span(120, 180, 0.7)]
    assert spans_within(spans, 50, 150) == [spans[1]]
    assert busy_frac_within(spans, 50, 150) == 0.4
    assert busy_frac_within(spans, 70, 150) is None


@pytest.mark.parametrize("busy_frac", [0.0, 1.0])
def test_a_sample_that_was_never_or_always_busy_holds_for_each_of_its_moments(busy_frac: float) -> None:
    spans = [span(0, 100, busy_frac), span(100, 200, 0.5)]
    assert spans_within(spans, 40, 150) == [span(40, 100, busy_frac)]
    assert busy_frac_within(spans, 40, 150) == busy_frac
    assert spans_within([span(0, 100, busy_frac)], 20, 30) == [span(20, 30, busy_frac)]
    assert spans_within([span(0, 100, busy_frac)], 100, 200) == []
