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

# Two-sided 95 % quantiles of Student's t for 1..30 degrees of freedom.
_T95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
#: The normal distribution's.
Z95 = 1.96


def t95(degrees_of_freedom: int) -> float:
    """Two-sided 95 % quantile of Student's t; beyond 30 degrees the normal's with a first-order correction."""
    if degrees_of_freedom <= len(_T95):
        return _T95[degrees_of_freedom - 1]
    return Z95 + 2.4 / degrees_of_freedom


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
        run_noise: relative standard deviation between repetitions in fresh processes, which no look inside one run
            can show; added in quadrature.

    With one window the run itself says nothing about its spread, and only ``run_noise`` is left.
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
    dozen windows that matters, so it is put right first.
    """
    spread = sum((value - mean) ** 2 for value in durations)
    count = len(durations)
    if spread == 0 or count < 5:
        return 1.0
    lagged = sum((a - mean) * (b - mean) for a, b in itertools.pairwise(durations))
    r = min(0.8, max(0.0, (count * lagged / spread + 1) / (count - 3)))
    return math.sqrt((1 + r) / (1 - r))
