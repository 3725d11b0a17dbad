"""How much repeats of one candidate scatter on this machine, estimated from the sweep itself. Pure.

The windows inside one run cannot show it: a host that slows down for half a minute slows all of them. Three things can,
and each counts as many degrees of freedom as it tells:

1. A prior, three degrees: half of all machines scatter by less than 6 %, one in ten by less than 4 % and one in ten
   by more than 12 %. Nine series on shared machines with two cores (``benchmarks/results/search_grids-*.json`` and
   runs of ``benchmarks/measuring/noise_floor.py``) scattered by 3 to 12 %.
2. The fixed decode loop that every child runs before and after its candidate. Rates scatter more than its readings do,
   because a loader also depends on memory bandwidth and the scheduler: in those series between 1.5 and 4.1 times as
   much, 2.5 in the middle. A factor that is that uncertain (standard deviation of the logarithm of its square: 0.7) is
   worth no more than four degrees, however many readings there are. A loader that sleeps, or waits for storage or a
   GPU, feels as much of it as it uses or waits for cores (:func:`felt_frac`): the loop's scatter counts in that
   proportion, and so do its degrees.
3. Repetitions of the same candidate: blocks, both measurements of the default, second attempts. They are what is asked
   for, and each counts in full. Their variance beyond what the scatter within each run explains is the estimate of
   Paule and Mandel (Journal of Research of the National Bureau of Standards 87, 1982).

The three variances are averaged with these weights, and the quantile of Student's t with the sum of the degrees takes
the place of the normal one in an interval: the posterior of a normal variance with a scaled inverse chi-square prior
(Gelman et al., "Bayesian Data Analysis", ch. 2.6). An accelerator's own scatter is estimated in the same way, from its
ceilings.

Of 200 sweeps on paper (``benchmarks/measuring/noise_floor.py``) the intervals of blocks cover the truth in 100 % where
runs scatter by 3 %, with a mean half-width of 8 %, and in 94 % where they scatter by 8 %; those of a device that sets
the pace in 100 and 94 %, where its processes scatter by 1.5 and 3 %. With the decode loop alone, the scatter of an
emulated device and idle time as the only sign of a loader's share these were 100, 93, 62 and 51 %.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import fmean, median

from pipetune.records.sweep import Measurement
from pipetune.stats.drift import relative_change
from pipetune.stats.intervals import Z95, t95

#: Relative standard deviation between runs before anything is known about the machine, and how many degrees of freedom
#: that is worth. With Student's t the first intervals are as wide as with a known standard deviation of 9 %.
PRIOR = 0.055
_PRIOR_FREEDOM = 3
#: The same of an accelerator that sets the pace. A real one lets cuDNN choose its algorithms anew in each process and
#: sits at another clock: 1 to 3 % is usual. An emulated one keeps its pace; this is what the timing of steps leaves.
DEVICE_PRIOR, EMULATED_PRIOR = 0.015, 0.003
#: Scatter of rates per scatter of machine speed, and the degrees of freedom that this factor is worth.
_RATE_PER_SPEED = 2.5
_FACTOR_FREEDOM = 4
#: A median absolute deviation tells as much of a standard deviation as this share of its values would.
_MAD_EFFICIENCY = 0.37
#: Resolution of a variance between repetitions: that of a standard deviation of 0.01 %.
_VARIANCE_STEP = 1e-8
#: From this share of idle time, or of time by which the accelerator's steps are longer than without a loader, the
#: loader alone is taken to decide the rate.
LOADER_BOUND = 0.05
#: Standard deviation of a normal distribution per median absolute deviation.
_SD_PER_MAD = 1.4826
#: Largest share by which the mean of a candidate's two speed readings may differ from the median of the sweep. The mean
#: scatters less than one reading, and rates do follow it (correlation 0.55 over 80 runs of
#: benchmarks/measuring/noise_floor.py).
OFF_USUAL_LIMIT = 0.10
#: Measurements that their median needs before it is compared with.
_MIN_MEASUREMENTS = 3


def run_noise(
    measurements: Iterable[Measurement | None],
    repetitions: Iterable[Sequence[Measurement]] = (),
    felt: float = 1.0,
) -> float:
    """The noise (0..) that intervals are stated with: 1.96 times as much covers a fresh repetition in 95 %.

    It is the standard deviation between repetitions (:func:`scatter_of_runs`, with the same arguments), widened by how
    uncertain that is itself.
    """
    return _widened(*_posterior(PRIOR, *_seen(measurements, repetitions, felt)))


def scatter_of_runs(
    measurements: Iterable[Measurement | None],
    repetitions: Iterable[Sequence[Measurement]] = (),
    felt: float = 1.0,
) -> float:
    """Relative standard deviation (0..) to be expected between fresh repetitions of one candidate.

    Args:
        measurements: all of this sweep so far; ``None`` (a failure) is passed over.
        repetitions: those of one candidate each; where the accelerator set the pace, they say nothing of loaders.
        felt: to which degree the rate follows the machine's speed (0..1), see :func:`felt_frac`.
    """
    return _posterior(PRIOR, *_seen(measurements, repetitions, felt))[0]


def felt_frac(measurement: Measurement) -> float:
    """To which degree (0..1), at most, a rate follows the machine's speed.

    A batch that takes a second, of which the loader and the step computed or waited for a core during c seconds, takes
    ``1 - c + c / s`` on a machine of s times the speed; the logarithm of the rate follows that of the speed by c. Which
    of several processes sets the pace is not known: each of them was on a core, or waited for one, no longer than all
    of them together. 1 where the CPU time was not measured.
    """
    if measurement.cores_used is None:
        return 1.0
    on_cores = measurement.cores_used + (measurement.step_cores or 0.0)
    return min(1.0, on_cores + (measurement.run_delay_frac or 0.0))


def device_noise(ceilings: Sequence[Measurement], kind: str) -> float:
    """Relative standard deviation (0..) to be expected between runs in which the accelerator sets the pace.

    It allows for its own uncertainty, as :func:`run_noise` does. Neighbouring ceilings are compared, so that a clock
    that falls slowly over the sweep is no scatter; k differences that share their ends are worth 2 k² / (3 k - 1)
    degrees of freedom (von Neumann and others, Annals of Mathematical Statistics 12, 1941).

    Args:
        ceilings: in the order in which they were measured.
        kind: of the accelerator: ``cuda``, ``xpu``, ``cpu`` or ``emulated``.
    """
    logs = [math.log(m.samples_per_s) for m in ceilings if m.samples_per_s > 0]
    steps = [(after - before) ** 2 / 2 for before, after in pairwise(logs)]
    prior = EMULATED_PRIOR if kind == "emulated" else DEVICE_PRIOR
    freedom = 2 * len(steps) ** 2 / (3 * len(steps) - 1) if steps else 0.0
    return _widened(*_posterior(prior, (fmean(steps) if steps else 0.0, freedom)))


def _posterior(prior: float, *variances: tuple[float, float]) -> tuple[float, float]:
    """Standard deviation and its degrees of freedom, from a prior one and variances with theirs."""
    freedom = _PRIOR_FREEDOM + sum(weight for _, weight in variances)
    variance = (_PRIOR_FREEDOM * prior**2 + sum(weight * value for value, weight in variances)) / freedom
    return math.sqrt(variance), freedom


def _widened(deviation: float, freedom: float) -> float:
    return t95(freedom) / Z95 * deviation


def _seen(
    measurements: Iterable[Measurement | None], repetitions: Iterable[Sequence[Measurement]], felt: float
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Variances between runs, with their degrees of freedom: by the decode loop, and by repetitions."""
    groups = [group for group in repetitions if len(group) > 1 and fmean(map(lost_to_loader, group)) >= LOADER_BOUND]
    variance, freedom = _by_decode_loop([_speed(m) for m in measurements if m is not None])
    return (felt**2 * variance, felt * freedom), _pooled(groups)


def _by_decode_loop(speeds: Sequence[float]) -> tuple[float, float]:
    """Variance between runs as the fixed decode loop suggests it, and its degrees of freedom."""
    if len(speeds) < 2:
        return 0.0, 0.0
    usual = median(speeds)
    # The median of the deviations: one slow moment, repeated for that very reason, must not widen all that follows.
    scatter = _RATE_PER_SPEED * _SD_PER_MAD * median(abs(speed / usual - 1) for speed in speeds)
    return scatter**2, 1 / (1 / (_MAD_EFFICIENCY * (len(speeds) - 1)) + 1 / _FACTOR_FREEDOM)


def _pooled(groups: Sequence[Sequence[Measurement]]) -> tuple[float, float]:
    """Variance of the logarithms of rates within groups beyond that within the runs, and its degrees of freedom.

    Why not the plain variance less that within the runs: of 120 runs on a quiet machine one stated ±52 % and was off by
    38 %, which widened the intervals of all others; two that stated ±90 and ±110 %, and were off by 5 and 15 %,
    explained away all scatter between the others. Here a run counts for as much as it tells.
    """
    freedom = sum(len(group) - 1 for group in groups)
    if not freedom:
        return 0.0, 0.0
    runs = [[(math.log(m.samples_per_s), (m.within_error_frac or 0.0) ** 2) for m in group] for group in groups]
    low, high = 0.0, sum(sum((value - fmean(v for v, _ in group)) ** 2 for value, _ in group) for group in runs)
    # The weighted squares fall as the variance between runs rises. At the wanted one they add up to the degrees of
    # freedom; at the sum of all squared deviations, to one at most.
    while high - low > _VARIANCE_STEP:
        middle = (low + high) / 2
        low, high = (middle, high) if _weighted_squares(runs, middle) > freedom else (low, middle)
    return high if low else 0.0, freedom


def _weighted_squares(groups: Sequence[Sequence[tuple[float, float]]], between: float) -> float:
    """Sum of the squared deviations from the groups' weighted means, each per variance of the value.

    Args:
        groups: values with the variance of each that is known.
        between: variance of all beyond that, > 0.
    """
    total = 0.0
    for group in groups:
        weights = [1 / (between + own) for _, own in group]
        middle = sum(w * value for w, (value, _) in zip(weights, group, strict=True)) / sum(weights)
        total += sum(w * (value - middle) ** 2 for w, (value, _) in zip(weights, group, strict=True))
    return total


def difference_by_chance(noise: float, repeats: int = 1) -> float:
    """Relative difference that chance alone makes between two measurements in 95 % of cases, at most.

    Args:
        noise: relative standard deviation between repeats.
        repeats: how often both were measured, side by side.
    """
    return Z95 * math.sqrt(2) * noise / math.sqrt(repeats)


def noise_of_run(
    run_noise: float, device_noise: float, idle_frac: float, step_slower_frac: float | None = None
) -> float:
    """Run-to-run noise of one measurement: the device's own, and the loader's to the degree to which it decides.

    An accelerator that is never idle decides the rate itself, and a slightly slower loader changes nothing.

    Args:
        run_noise: of the machine (:func:`run_noise`).
        device_noise: of the accelerator (:func:`device_noise`).
        idle_frac: see :func:`loader_share`.
        step_slower_frac: see :func:`loader_share`.
    """
    return math.hypot(device_noise, run_noise * loader_share(idle_frac, step_slower_frac))


def loader_share(idle_frac: float, step_slower_frac: float | None = None) -> float:
    """To which degree (0..1) the loader decides the rate, by making the accelerator wait or by slowing its steps.

    Time that the accelerator loses inside a step, because the loader's threads hold the interpreter, a core or the
    memory's bandwidth, is work of the accelerator and not idle time.

    Args:
        idle_frac: share of the timed phase in which the accelerator was idle, or waited for those of other ranks, which
            their loaders may have kept waiting.
        step_slower_frac: share by which its steps took longer than without a loader; ``None`` for an emulated one.
    """
    return min(1.0, max(idle_frac, step_slower_frac or 0.0) / LOADER_BOUND)


def lost_to_loader(measurement: Measurement) -> float:
    """Share of the time (0..1) in which the accelerator waited for the loader, or by which its steps were slower."""
    return max(waiting_frac(measurement), measurement.step_slower_frac or 0.0)


def waiting_frac(measurement: Measurement) -> float:
    """Share of the timed phase in which accelerators had no batch to run on, or waited for those of other ranks.

    They wait for others without a loader, too, where accelerators differ. So no more of it counts than goodput lacks.
    """
    others = measurement.others_wait_frac or 0.0
    lost = 0.0 if measurement.goodput is None else max(0.0, 1 - measurement.goodput)
    return min(1.0, measurement.accelerator_idle_frac + min(others, lost))


def restarting_frac(measurement: Measurement) -> float:
    """Share of the time (0..1) that goes to epochs' beginnings: workers that start anew with each, or wait for it."""
    steady = measurement.steady_samples_per_s
    return 0.0 if steady is None else max(0.0, 1 - measurement.samples_per_s / steady)


def off_usual_speed(measurement: Measurement, all_of_sweep: Sequence[Measurement | None]) -> float:
    """Relative difference of the machine's speed during one measurement from the median of the sweep; > 0: faster.

    A measurement's speed is the mean of the readings before and after it; 0 with fewer than three measurements.
    """
    speeds = [_speed(m) for m in all_of_sweep if m is not None]
    return relative_change(median(speeds), _speed(measurement)) if len(speeds) >= _MIN_MEASUREMENTS else 0.0


def _speed(measurement: Measurement) -> float:
    return (measurement.machine_speed_before + measurement.machine_speed_after) / 2
