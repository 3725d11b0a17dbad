"""A rate and its confidence interval from the timed steps: batch means. Pure.

Method of batch means (Law, "Simulation Modeling and Analysis", ch. 9): the timed phase is cut into windows of equally
many batches; the windows' durations are close to independent where single steps are not, because workers deliver in
bursts and the prefetch queue smooths neighbours.

Windows that still follow their neighbours count as fewer: n windows of an AR(1) process with autocorrelation r tell as
much of the mean as n (1 - r) / (1 + r) independent ones (Bayley and Hammersley, Journal of the Royal Statistical
Society 8, 1946), in the standard error and in the degrees of freedom alike. A dozen windows tell little of their own
autocorrelation, so what is usual among runs counts, too: of 40 runs of four loaders on two cores it was 0.14 in the
mean, and differed from run to run hardly more than chance makes it. Of 8,000 simulated runs of 12 windows the interval
covers the truth in 97, 95, 91, 86 and 74 % for r = 0, 0.2, 0.4, 0.6 and 0.8; with as much scatter between runs, which
is added, in 96, 95, 94, 92 and 88 %. With the windows' own autocorrelation alone these were 97, 95, 92, 91 and 87 %,
by intervals half as wide again.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from statistics import fmean, stdev

from pipetune.records.sweep import StepTime
from pipetune.stats.intervals import Z95, t95

#: By how much wider the part of the interval within the run is where the run may end as soon as its interval is narrow
#: enough: that is looked at several times, and the extreme look counts. Pocock's constant for four looks at 95 % is
#: 2.361 in place of 1.960 (Biometrika 64, 1977); :mod:`pipetune.measure.phases` says when is looked.
EARLY_FACTOR = 1.2
#: Limits of what a dozen windows can tell of their own autocorrelation.
_MOST_CORRELATION, _LEAST_FREEDOM = 0.8, 2.0
#: Mean and standard deviation of that autocorrelation among runs, before any is looked at: chosen a little above what
#: was measured (0.14, and at most 0.2 beyond chance), where intervals are wider.
_USUAL_CORRELATION, _CORRELATION_SD = 0.2, 0.3


def window_durations(steps: Sequence[StepTime], began_ns: int, window_batches: float) -> list[float]:
    """Seconds that each whole window of ``window_batches`` steps took; an incomplete last window is left out.

    Where that is no whole number, windows end with the step that comes nearest.

    Args:
        began_ns: when the step before the first one ended.
    """
    ends = [step.t_end_ns for step in steps]
    times = [began_ns, *(ends[edge - 1] for edge in window_edges(len(steps), window_batches)[1:])]
    return [(after - before) / 1e9 for before, after in itertools.pairwise(times)]


def window_edges(count: int, window_batches: float) -> list[int]:
    """Where windows of ``window_batches`` begin and end, in ``count`` steps: 0 and each end of a whole one.

    Not ``round``, which takes halves to even numbers: the parts of one epoch would be others than those of the next.
    """
    return [int(n * window_batches + 0.5) for n in range(int(count / window_batches + 1e-9) + 1)]


def step_slower_frac(steps: Sequence[StepTime], alone_samples_per_s: float) -> float:
    """By which share a step computed longer than without a loader, copies left out; < 0: it was faster.

    Args:
        alone_samples_per_s: the accelerator's rate without a loader (the ceiling).
    """
    device_s = sum(step.compute_s for step in steps)
    return device_s / sum(step.samples for step in steps) * alone_samples_per_s - 1


def rate_interval(
    durations: Sequence[float],
    samples_per_window: float,
    run_noise: float,
    *,
    ended_early: bool = False,
    parts: int = 1,
) -> tuple[float, float, float]:
    """``(rate, low, high)`` in samples/s at 95 %.

    Args:
        durations: seconds per window, at least one.
        samples_per_window: samples in each.
        run_noise: relative standard deviation between repeats in fresh processes, which one run cannot show.
        ended_early: the run ended because its interval was narrow enough; see :data:`EARLY_FACTOR`.
        parts: see :func:`within_error`.

    A single window has no spread of its own: its interval is that of ``run_noise``.
    """
    rate = samples_per_window / fmean(durations)
    half = interval_half(durations, run_noise, EARLY_FACTOR if ended_early else 1.0, parts)
    return rate, rate * max(0.0, 1 - half), rate * (1 + half)


def mean_of_blocks(found: Sequence[tuple[float, tuple[float, float]]]) -> tuple[float, tuple[float, float]]:
    """Mean rate over blocks, with its 95 % interval: each block's is widened by the machine's noise already.

    Args:
        found: rate (samples/s) and 95 % interval of each block; not empty.
    """
    rate = fmean(one for one, _ in found)
    half = math.sqrt(sum(((high - low) / 2) ** 2 for _, (low, high) in found)) / len(found)
    return rate, (max(0.0, rate - half), rate + half)


def interval_half(values: Sequence[float], noise: float, factor: float = 1.0, parts: int = 1) -> float:
    """Relative half-width (0..) of the 95 % interval of a mean of one run's values, scatter between runs included.

    The variances are added; the degrees of freedom of the sum are those of Welch and Satterthwaite (Biometrics Bulletin
    2, 1946), with infinitely many for the scatter between runs, whose own uncertainty it includes already
    (:func:`pipetune.stats.noise.run_noise`). Why not the two half-widths in quadrature: Student's t of a few windows
    would be paid in full even where they decide little.

    Args:
        values: of equal parts of the run, in their order.
        noise: relative standard deviation between runs.
        factor: by which the scatter within the run counts more.
        parts: see :func:`within_error`.
    """
    error, degrees_of_freedom = within_error(values, parts)
    if error == 0:
        return Z95 * noise
    error *= factor
    variance = error**2 + noise**2
    return t95(degrees_of_freedom * (variance / error**2) ** 2) * math.sqrt(variance)


def within_interval(durations: Sequence[float], parts: int = 1) -> float:
    """Relative half-width (0..) of the interval that the scatter within the run alone gives the mean, at 95 %."""
    error, degrees_of_freedom = within_error(durations, parts)
    return t95(degrees_of_freedom) * error


def within_error(durations: Sequence[float], parts: int = 1) -> tuple[float, float]:
    """Relative standard error of the mean duration from the scatter within the run, and its degrees of freedom.

    Args:
        durations: of windows, in their order.
        parts: so many windows in a row are an epoch. Each part has its own mean then, which takes a degree of freedom,
            and only what the same part differs by from epoch to epoch is scatter, as much in one part as in another (a
            one-way layout). Windows of fewer than two epochs count as if they were no parts of any.
    """
    count, mean = len(durations), fmean(durations)
    if count < 2:
        return 0.0, 1.0
    if parts < 2 or count < 2 * parts:
        independent = count / correlation_factor(durations)
        return stdev(durations) / math.sqrt(independent) / mean, max(_LEAST_FREEDOM, independent - 1)
    of_parts = [fmean(durations[part::parts]) for part in range(parts)]
    left = [duration - of_parts[at % parts] for at, duration in enumerate(durations)]
    factor = correlation_factor(left)
    variance = sum(value**2 for value in left) / (count - parts)
    return math.sqrt(variance * factor / count) / mean, max(_LEAST_FREEDOM, (count - parts) / factor)


def correlation_factor(values: Sequence[float]) -> float:
    """How many values that follow their neighbours tell as much as one independent value: (1 + r) / (1 - r), >= 1.

    The plain estimate of r from n values is low by about (1 + 3 r) / n (Marriott and Pope, Biometrika 41, 1954); with a
    dozen windows that matters, so it is corrected first. What then remains scatters by about 1 / sqrt(n - 3): it is
    averaged with what is usual, each weighted by the inverse of its variance (the mean of a normal variable with a
    normal prior; Gelman et al., "Bayesian Data Analysis", ch. 2.5).
    """
    count, mean = len(values), fmean(values)
    spread = sum((value - mean) ** 2 for value in values)
    if spread == 0 or count < 5:
        return 1.0
    lagged = sum((a - mean) * (b - mean) for a, b in itertools.pairwise(values))
    seen, weight = (count * lagged / spread + 1) / (count - 3), 1 / (1 + 1 / (count - 3) / _CORRELATION_SD**2)
    r = min(_MOST_CORRELATION, max(0.0, weight * seen + (1 - weight) * _USUAL_CORRELATION))
    return (1 + r) / (1 - r)
