from __future__ import annotations

import numpy as np
import pytest

from pipetune.plot.thin import bin_extremes, bin_means, covered, edges_of, visible


def test_the_covered_share_of_a_bin_is_exact_however_short_the_spans_are() -> None:
    edges = edges_of(0.0, 4.0, 4)
    starts, ends = np.array([0.5, 1.0, 2.25, 2.3]), np.array([1.0, 1.001, 2.3, 3.5])

    assert covered(starts, ends, edges).tolist() == pytest.approx([0.5, 0.001, 0.75, 0.5])


def test_a_span_over_many_bins_fills_them_all_and_none_leaves_them_empty() -> None:
    edges = edges_of(0.0, 4.0, 4)

    assert covered(np.array([-1.0]), np.array([9.0]), edges).tolist() == [1.0] * 4
    assert covered(np.array([]), np.array([]), edges).tolist() == [0.0] * 4


def test_coverage_agrees_with_counting_on_a_fine_grid() -> None:
    random = np.random.default_rng(1)
    borders = np.sort(random.uniform(0, 10, 400))
    starts, ends = borders[::2], borders[1::2]
    fine = np.linspace(0, 10, 1_000_001)[:-1] + 5e-6
    inside = np.searchsorted(starts, fine, side="right") > np.searchsorted(ends, fine, side="right")

    found = covered(starts, ends, edges_of(0.0, 10.0, 37))

    number = np.minimum((fine / 10 * 37).astype(int), 36)
    assert found == pytest.approx(np.bincount(number, inside) / np.bincount(number), abs=1e-3)


def test_means_are_weighted_with_the_time_that_a_reading_covers_and_skip_what_is_unknown() -> None:
    edges = edges_of(0.0, 2.0, 2)
    times, spans = np.array([0.3, 1.0, 1.5, 2.0]), np.array([0.3, 0.7, 0.5, 0.5])

    at, mean = bin_means(times, np.array([10.0, 0.0, np.nan, 8.0]), spans, edges)

    assert at.tolist() == [0.5, 1.5]
    assert mean.tolist() == pytest.approx([3.0, 8.0])
    assert bin_means(times, np.full(4, np.nan), spans, edges)[0].tolist() == []


def test_few_values_are_kept_as_they_are_and_many_become_their_extremes() -> None:
    few = bin_extremes(np.array([0.1, 0.2]), np.array([3.0, np.nan]), edges_of(0, 1, 10))
    assert (few.at.tolist(), few.low.tolist(), few.thinned) == ([0.1], [3.0], False)

    values = np.ones(10_000)
    values[[17, 9_999]] = (-5.0, 7.0)
    many = bin_extremes(np.linspace(0, 1, 10_000), values, edges_of(0, 1, 100))
    assert many.thinned
    assert (many.low.min(), many.high.max()) == (-5.0, 7.0)
    assert len(many.at) == 100


def test_every_span_of_at_least_a_pixel_is_kept() -> None:
    found = visible(np.array([0.5, 0.01, 0.1, 0.02]), 0.1)

    assert found.kept.tolist() == [0, 2]
    assert (found.short, found.short_s) == (2, pytest.approx(0.03))


def test_a_timeline_without_length_has_a_bin() -> None:
    assert len(edges_of(1.0, 1.0, 0)) == 2
