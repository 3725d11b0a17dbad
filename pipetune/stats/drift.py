"""Drift: whether the machine's speed changed between two readings, and whether a rate still changes. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from pipetune.stats.intervals import t95
from pipetune.stats.rates import correlation_factor

#: Largest share by which the two readings of one candidate may differ before its measurement gets a warning. Of 80
#: pairs on a shared two-core machine (benchmarks/measuring/noise_floor.py) one in eight differed by more than 10 %,
#: without any relation to the rate between them, and one in forty by more than 15 %; a competing process on each core
#: halves it.
DRIFT_LIMIT = 0.15
#: Share by which the rates of a run's first and last third may differ in any case: as much as the last windows of a
#: warm-up (:data:`pipetune.measure.phases.STEADY_TOLERANCE`).
STEADY_LIMIT = 0.05
#: Least number of windows in a third.
_LEAST_WINDOWS = 3
#: 99 % quantile of Student's t per its 95 % quantile, at ten degrees of freedom. A sweep asks a few dozen times, so one
#: in twenty would be a false alarm per sweep.
_TO_99 = 1.42


def relative_change(before: float, after: float) -> float:
    """``after / before - 1``: -0.2 when the machine became a fifth slower. Its size is compared with DRIFT_LIMIT.

    Raises:
        ValueError: ``before`` is not above zero.
    """
    if not before > 0:
        raise ValueError(f"a machine speed is above zero, got {before}")
    return after / before - 1


def change_within(durations: Sequence[float]) -> float | None:
    """By which share the rate of a run's last third differs from that of its first; > 0: it became faster.

    ``None``: by no more than :data:`STEADY_LIMIT` or than chance explains (99 %), or there are too few windows. Of
    simulated runs without a change about 1 % are said to change where windows are independent, 3 % and 8 to 12 % where
    neighbours are correlated by 0.3 and 0.6.

    Args:
        durations: seconds per window of equally many batches.
    """
    size = len(durations) // 3
    if size < _LEAST_WINDOWS:
        return None
    thirds = durations[:size], durations[size : len(durations) - size], durations[len(durations) - size :]
    # What is left when each third has its own mean: a change must not count as scatter.
    rest = [duration - fmean(third) for third in thirds for duration in third]
    correlated = correlation_factor(rest)
    variance = sum(value**2 for value in rest) / (len(rest) - len(thirds))
    error = math.sqrt(2 * variance * correlated / size)
    first, last = fmean(thirds[0]), fmean(thirds[-1])
    change = first / last - 1
    allowed = _TO_99 * t95(max(2.0, (len(rest) - len(thirds)) / correlated)) * error
    return change if abs(last - first) > allowed and abs(change) > STEADY_LIMIT else None
