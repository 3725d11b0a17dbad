"""How much repeats of one candidate scatter on this machine, estimated from the sweep itself. Pure.

The windows inside one run cannot show it: a host that slows down for half a minute slows all of them. The fixed decode
loop that every child runs before and after its candidate can. Rates scatter more than its readings do, because a loader
also depends on memory bandwidth and the scheduler: between 1.6 and 3.7 times as much in two series of
``benchmarks/measuring/noise_floor.py`` (80 runs each, a quiet and a restless hour), for which 2.5 makes the intervals
cover the truth in about 95 %. At first there are few readings, so the estimate starts from a prior that counts as four.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import median

from pipetune.records.sweep import Measurement
from pipetune.stats.drift import relative_change
from pipetune.stats.intervals import Z95

#: Relative standard deviation between runs before anything is known about the machine: that of a shared virtual
#: machine. A quiet one is soon recognised; starting with too narrow an interval would be worse.
PRIOR = 0.08
_PRIOR_WEIGHT = 4
#: Scatter of rates per scatter of machine speed.
_RATE_PER_SPEED = 2.5
#: Run-to-run relative standard deviation of an accelerator that is never idle.
DEVICE_NOISE = 0.005
#: From this share of idle time on, the loader alone is taken to decide the rate.
LOADER_BOUND = 0.05
#: Standard deviation of a normal distribution per median absolute deviation.
_SD_PER_MAD = 1.4826
#: Largest share by which the mean of a candidate's two speed readings may differ from the median of the sweep. The mean
#: scatters less than one reading, and rates do follow it (correlation 0.55 over 80 runs of
#: benchmarks/measuring/noise_floor.py).
OFF_USUAL_LIMIT = 0.10
#: Measurements that their median needs before it is compared with.
_MIN_MEASUREMENTS = 3


def run_noise(measurements: Iterable[Measurement | None]) -> float:
    """Relative standard deviation (0..) to be expected between fresh repeats of one candidate.

    Args:
        measurements: all of this sweep so far; ``None`` (a failure) is passed over.
    """
    speeds = [_speed(m) for m in measurements if m is not None]
    seen = max(0, len(speeds) - 1)
    scatter = 0.0
    if seen:
        usual = median(speeds)
        # The median of the deviations: one slow moment, repeated for that very reason, must not widen all that follows.
        scatter = _RATE_PER_SPEED * _SD_PER_MAD * median(abs(speed / usual - 1) for speed in speeds)
    return math.sqrt((_PRIOR_WEIGHT * PRIOR**2 + seen * scatter**2) / (_PRIOR_WEIGHT + seen))


def difference_by_chance(noise: float, repeats: int = 1) -> float:
    """Relative difference that chance alone makes between two measurements in 95 % of cases, at most.

    Args:
        noise: relative standard deviation between repeats.
        repeats: how often both were measured, side by side.
    """
    return Z95 * math.sqrt(2) * noise / math.sqrt(repeats)


def noise_of_run(run_noise: float, idle_frac: float) -> float:
    """Run-to-run noise of one measurement: the loader's, to the degree to which the loader decides the rate.

    An accelerator that is never idle decides the rate itself, and a slightly slower loader changes nothing.

    Args:
        run_noise: of the machine (:func:`run_noise`).
        idle_frac: share of the timed phase in which the accelerator was idle.
    """
    return math.hypot(DEVICE_NOISE, run_noise * min(1.0, idle_frac / LOADER_BOUND))


def off_usual_speed(measurement: Measurement, all_of_sweep: Sequence[Measurement | None]) -> float:
    """Relative difference of the machine's speed during one measurement from the median of the sweep; > 0: faster.

    A measurement's speed is the mean of the readings before and after it; 0 with fewer than three measurements.
    """
    speeds = [_speed(m) for m in all_of_sweep if m is not None]
    return relative_change(median(speeds), _speed(measurement)) if len(speeds) >= _MIN_MEASUREMENTS else 0.0


def _speed(measurement: Measurement) -> float:
    return (measurement.machine_speed_before + measurement.machine_speed_after) / 2
