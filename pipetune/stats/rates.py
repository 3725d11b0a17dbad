"""A rate and its confidence interval from the timed steps: batch means. Pure.

Method of batch means (Law, "Simulation Modeling and Analysis", ch. 9): the timed phase is cut into windows of equally
many batches; the windows' durations are close to independent where single steps are not, because workers deliver in
bursts and the prefetch queue smooths neighbours.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from statistics import fmean, stdev

from pipetune.records.sweep import StepTime
from pipetune.stats.intervals import Z95, t95


def window_durations(steps: Sequence[StepTime], began_ns: int, window_batches: int) -> list[float]:
    """Seconds that each whole window of ``window_batches`` steps took; an incomplete last window is left out.

    Args:
        began_ns: when the step before the first one ended.
    """
    edges = [began_ns] + [steps[i].t_end_ns for i in range(window_batches - 1, len(steps), window_batches)]
    return [(after - before) / 1e9 for before, after in itertools.pairwise(edges)]


def rate_interval(
    durations: Sequence[float], samples_per_window: float, run_noise: float
) -> tuple[float, float, float]:
    """``(rate, low, high)`` in samples/s at 95 %.

    Args:
        durations: seconds per window, at least one.
        samples_per_window: samples in each.
        run_noise: relative standard deviation between repeats in fresh processes, which one run cannot show; added
            in quadrature.

    A single window has no spread of its own: its interval is that of ``run_noise``.
    """
    mean = fmean(durations)
    rate = samples_per_window / mean
    within = 0.0
    if len(durations) > 1:
        inflate = _autocorrelation_factor(durations, mean)
        within = t95(len(durations) - 1) * stdev(durations) * inflate / math.sqrt(len(durations)) / mean
    half = math.hypot(within, Z95 * run_noise)
    return rate, rate * max(0.0, 1 - half), rate * (1 + half)


def _autocorrelation_factor(durations: Sequence[float], mean: float) -> float:
    """Factor on the standard error for windows that follow their neighbours (AR(1): sqrt((1+r)/(1-r))), >= 1.

    The plain estimate of r from n values is low by about (1 + 3 r) / n (Marriott and Pope, Biometrika 41, 1954); with a
    dozen windows that matters, so it is corrected first.
    """
    spread = sum((value - mean) ** 2 for value in durations)
    count = len(durations)
    if spread == 0 or count < 5:
        return 1.0
    lagged = sum((a - mean) * (b - mean) for a, b in itertools.pairwise(durations))
    r = min(0.8, max(0.0, (count * lagged / spread + 1) / (count - 3)))
    return math.sqrt((1 + r) / (1 - r))
