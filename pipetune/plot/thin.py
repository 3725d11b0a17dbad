"""From many points to as many as there are pixels, without losing what a person looks for. Pure.

Curves of shares become exact means per pixel column, rhythms become the lowest and highest value in it, and a stall
that is at least as long as a pixel is always kept as it is.

Why not LTTB or another downsampler: it keeps points that stand out, but neither exact means nor every stall.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[tuple[int], np.dtype[Any]]


class Extremes(NamedTuple):
    """Lowest and highest value per bin that has any."""

    at: Array
    low: Array
    high: Array
    thinned: bool
    """More values than bins: some of them are not shown one by one."""


def edges_of(first: float, last: float, pixels: int) -> Array:
    """Borders of ``pixels`` equal bins."""
    import numpy as np

    return np.linspace(first, max(last, first + 1e-9), max(1, pixels) + 1)


def covered(starts: Array, ends: Array, edges: Array) -> Array:
    """Share of each bin that the spans cover (0..1); spans do not overlap one another. Exact, however short they are.

    Args:
        starts, ends: of the spans, sorted, in the unit of ``edges``.
    """
    import numpy as np

    if not len(starts):
        return np.zeros(len(edges) - 1)
    # Covered time up to each border: whole spans that ended before it, and the part of the one that it lies in.
    total = np.concatenate([[0.0], np.cumsum(ends - starts)])
    number = np.searchsorted(starts, edges, side="right")
    last = np.maximum(number - 1, 0)
    inside = np.where(number > 0, np.minimum(edges, ends[last]) - starts[last], 0.0)
    until = np.where(number > 0, total[last] + np.maximum(inside, 0.0), 0.0)
    return np.clip(np.diff(until) / np.diff(edges), 0.0, 1.0)


def bin_means(times: Array, values: Array, spans: Array, edges: Array) -> tuple[Array, Array]:
    """Mean of the readings in each bin, weighted with the time that each covers: centres of bins that have any, means.

    Args:
        times: of the readings, each about the ``spans`` before it.
    """
    import numpy as np

    known = np.isfinite(values) & (spans > 0)
    number = np.clip(np.searchsorted(edges, times[known] - spans[known] / 2, side="right") - 1, 0, len(edges) - 2)
    weight = np.bincount(number, spans[known], minlength=len(edges) - 1)
    total = np.bincount(number, values[known] * spans[known], minlength=len(edges) - 1)
    there = weight > 0
    return (edges[:-1] + edges[1:])[there] / 2, total[there] / weight[there]


def bin_extremes(times: Array, values: Array, edges: Array) -> Extremes:
    """Lowest and highest value per bin; where there are fewer values than bins, each value itself."""
    import numpy as np

    known = np.isfinite(values)
    times, values = times[known], values[known]
    if len(values) <= len(edges) - 1:
        return Extremes(times, values, values, thinned=False)
    number = np.clip(np.searchsorted(edges, times, side="right") - 1, 0, len(edges) - 2)
    low, high = np.full(len(edges) - 1, np.inf), np.full(len(edges) - 1, -np.inf)
    np.minimum.at(low, number, values)
    np.maximum.at(high, number, values)
    there = np.isfinite(low)
    return Extremes((edges[:-1] + edges[1:])[there] / 2, low[there], high[there], thinned=True)


class Spans(NamedTuple):
    """Spans that are long enough to be seen, and what the others come to."""

    kept: Array
    """Indices of those at least as long as a pixel."""
    short: int
    short_s: float
    """Time that the short ones cover together."""


def visible(lengths: Array, pixel: float) -> Spans:
    """Which spans are drawn: every one that is at least a pixel long."""
    import numpy as np

    long = lengths >= pixel
    return Spans(np.flatnonzero(long), int((~long).sum()), float(lengths[~long].sum()))
