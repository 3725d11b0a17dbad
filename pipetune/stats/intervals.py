"""Intervals of ratios, shares and means."""

from __future__ import annotations

import math
from collections.abc import Iterable

from pipetune.records.sweep import Measurement
from pipetune.stats.rates import Z95


def ratio_interval(rate: float, ci95: tuple[float, float], divisor: Measurement) -> tuple[float, float]:
    """95 % interval of ``rate / divisor``: that of a ratio of independent estimates (first-order error propagation)."""
    ratio = rate / divisor.samples_per_s
    relative = math.hypot((ci95[1] - rate) / rate, (divisor.ci95[1] - divisor.samples_per_s) / divisor.samples_per_s)
    return ratio * max(0.0, 1 - relative), ratio * (1 + relative)


def wilson(share: float, count: float) -> tuple[float, float]:
    """95 % interval of a share seen in ``count`` independent looks (Wilson's score interval)."""
    if count <= 0:
        return 0.0, 1.0
    middle = (share + Z95**2 / (2 * count)) / (1 + Z95**2 / count)
    half = Z95 / (1 + Z95**2 / count) * math.sqrt(share * (1 - share) / count + Z95**2 / (4 * count**2))
    return max(0.0, middle - half), min(1.0, middle + half)


def mean(values: Iterable[float | None]) -> float | None:
    """Of those that were measured; ``None``: none was."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
