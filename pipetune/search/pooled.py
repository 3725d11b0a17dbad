"""What is known of the candidates: a sweep's outcomes, brought to one machine speed and to one each. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from pipetune.candidates.space import Space
from pipetune.records.sweep import Candidate, Goal, Measurement, Outcome
from pipetune.stats.intervals import median_interval
from pipetune.stats.noise import LOADER_BOUND

#: The machine's speed has changed when it is off by more than this share. Its readings scatter by a few per cent.
CHANGED_SPEED = 0.08
#: So many newest measurements tell at which speed the machine runs now.
NEWEST = 3
#: Below this idle share a loader may have had room left, nobody knows how much.
_FED = 0.02


def baseline(space: Space) -> Candidate:
    """What a script does untuned: PyTorch's DataLoader defaults around ImageFolder's Pillow loader."""
    return Candidate(backend=space.default_backend, num_workers=0, prefetch_depth=0, batch_size=space.batch_size)


def achieved(measurement: Measurement, goal: Goal) -> float | None:
    """The share that the goal speaks of (0..1); ``None`` when it was not measured."""
    if goal.metric == "nvml":
        return None if measurement.gpu_util_pct is None else measurement.gpu_util_pct / 100
    return measurement.goodput


def meets(measurement: Measurement, goal: Goal) -> bool:
    """The point estimate reaches the target."""
    share = achieved(measurement, goal)
    return share is not None and share >= goal.target


def straddles(measurement: Measurement, goal: Goal) -> bool:
    """The target lies inside the 95 % interval of the goodput: chance may have decided."""
    interval = measurement.goodput_ci95
    return goal.metric == "goodput" and interval is not None and interval[0] < goal.target <= interval[1]


def cores_of(outcome: Outcome, measurement: Measurement) -> float:
    """Cores really used (CPU seconds per second); the worker count stands in where they were not measured."""
    return measurement.cores_used if measurement.cores_used is not None else max(1, outcome.candidate.num_workers)


def known(outcomes: Sequence[Outcome], goal: Goal) -> dict[str, Outcome]:
    """What is known of each candidate, by its key, as it would be at the machine's present speed: to choose by.

    As in :func:`latest`, but a first look that missed the goal counts with the blocks: a candidate was hardly chosen
    for its rate then, as one may have been that met the goal by chance.
    """
    missed = [outcome.measurement is not None and not meets(outcome.measurement, goal) for outcome in outcomes]
    return _newest(at_present_speed(outcomes), missed)


def latest(outcomes: Sequence[Outcome]) -> dict[str, Outcome]:
    """One outcome per candidate, to be stated; the ceiling is not among them.

    A repeated measurement replaces the drifted one; a repetition that failed replaces nothing that was measured, unless
    it fails more often than not. Those made in blocks count together, and what was measured before no more.
    """
    return _newest(outcomes, [False] * len(outcomes))


def _newest(outcomes: Sequence[Outcome], counts: Sequence[bool]) -> dict[str, Outcome]:
    """See above; ``counts``: of each outcome, whether it counts with the blocks, should it be a first look."""
    newest: dict[str, Outcome] = {}
    failed: dict[str, list[Outcome]] = {}
    times = Counter(outcome.candidate.key for outcome in outcomes if outcome.role != "ceiling")
    looks: dict[str, dict[int, Outcome]] = {}
    for outcome, as_first in zip(outcomes, counts, strict=True):
        key = outcome.candidate.key
        before = newest.get(key)
        if outcome.failure and outcome.role != "ceiling":
            failed.setdefault(key, []).append(outcome)
        if outcome.role == "ceiling" or not (outcome.measurement or before is None or before.measurement is None):
            continue
        newest[key] = outcome
        if outcome.measurement is None:
            continue
        # The default's first look is as long as those in blocks, and nobody has chosen it for its rate either.
        if outcome.block or outcome.role == "baseline" or as_first:
            looks.setdefault(key, {})[outcome.block] = outcome
        else:
            looks.get(key, {}).pop(0, None)
        if outcome.block:
            newest[key] = pooled(list(looks[key].values()))
    often = {key: found[-1] for key, found in failed.items() if len(found) > times[key] / 2}
    return {**newest, **often}


def pooled(outcomes: Sequence[Outcome]) -> Outcome:
    """Measurements of one candidate as one: medians, since one of a few is easily far off, with their intervals."""
    found = [outcome.measurement for outcome in outcomes if outcome.measurement is not None]
    if len(found) < 2:
        return outcomes[-1]

    def typical(value: Callable[[Measurement], float | None]) -> Any:
        values = [value(m) for m in found]
        return None if None in values else median(v for v in values if v is not None)

    def interval(value: Callable[[Measurement], float | None], ends: Callable[[Measurement], Any]) -> Any:
        values, intervals = [value(m) for m in found], [ends(m) for m in found]
        if None in values or None in intervals:
            return None
        return median_interval([v for v in values if v is not None], intervals)

    return replace(outcomes[-1], measurement=replace(
        found[-1],
        samples_per_s=typical(lambda m: m.samples_per_s), ci95=interval(lambda m: m.samples_per_s, lambda m: m.ci95),
        goodput=typical(lambda m: m.goodput), goodput_ci95=interval(lambda m: m.goodput, lambda m: m.goodput_ci95),
        gpu_util_pct=typical(lambda m: m.gpu_util_pct), cores_used=typical(lambda m: m.cores_used),
        cpu_s_per_1000_samples=typical(lambda m: m.cpu_s_per_1000_samples),
        accelerator_idle_frac=typical(lambda m: m.accelerator_idle_frac),
        data_wait_frac=typical(lambda m: m.data_wait_frac),
    ))  # fmt: skip


def speed_of(measurement: Measurement) -> float:
    """The machine's, during it: MB/s of the fixed decode loop."""
    return (measurement.machine_speed_before + measurement.machine_speed_after) / 2


def present_speed(outcomes: Sequence[Outcome]) -> float | None:
    """The machine's speed now; ``None`` while there is too little to go by."""
    return _now(outcomes, speed_of)


def _now(outcomes: Sequence[Outcome], speed: Callable[[Measurement], float | None]) -> float | None:
    measured = [o.measurement for o in outcomes if o.measurement is not None and o.role != "ceiling"]
    speeds = [found for found in map(speed, measured) if found is not None]
    return median(speeds[-NEWEST:]) if len(speeds) > NEWEST else None


def at_present_speed(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Outcomes as they would be at the machine's present speed: what was measured at another one is corrected.

    A loader's rate follows the speed and an accelerator's does not, so only a loader that held its accelerator up is
    corrected in full. The interval grows by half of the correction, so that what decides is measured once more.

    The CPU time that an image takes follows the clock of the cores: whoever has to wait for one uses no more of it.
    """
    now = present_speed(outcomes)
    if now is None:
        return list(outcomes)
    cpu_now = _now(outcomes, lambda m: m.machine_cpu_speed)
    return [
        replace(outcome, measurement=_at_speed(_at_clock(outcome.measurement, cpu_now), now))
        if outcome.measurement
        else outcome
        for outcome in outcomes
    ]


def _at_clock(m: Measurement, now: float | None) -> Measurement:
    if now is None or m.machine_cpu_speed is None or m.cpu_s_per_1000_samples is None:
        return m
    change = now / m.machine_cpu_speed - 1
    if abs(change) <= CHANGED_SPEED:
        return m
    return _using(m, m.cpu_s_per_1000_samples / (1 + change))


def _using(m: Measurement, cpu_s_per_1000_samples: float | None) -> Measurement:
    """With so much CPU time per image, at its rate."""
    cores = None if cpu_s_per_1000_samples is None else m.samples_per_s * cpu_s_per_1000_samples / 1000
    return replace(m, cpu_s_per_1000_samples=cpu_s_per_1000_samples, cores_used=cores)


def _at_speed(m: Measurement, now: float) -> Measurement:
    change = now / speed_of(m) - 1
    if abs(change) <= CHANGED_SPEED:
        return m
    bound = min(1.0, m.accelerator_idle_frac / LOADER_BOUND)
    if change < 0:
        bound = 1.0 if m.accelerator_idle_frac > _FED else 0.5
    most = m.samples_per_s / m.goodput if m.goodput else m.samples_per_s * (1 + max(0.0, change))
    factor = min(1 + change * bound, most / m.samples_per_s)
    slack = abs(factor - 1) / 2

    def scaled(interval: tuple[float, float]) -> tuple[float, float]:
        return interval[0] * (factor - slack), interval[1] * (factor + slack)

    changed = replace(
        m, samples_per_s=m.samples_per_s * factor, ci95=scaled(m.ci95),
        goodput=None if m.goodput is None else m.goodput * factor,
        goodput_ci95=None if m.goodput_ci95 is None else scaled(m.goodput_ci95),
    )  # fmt: skip
    return changed if m.cores_used is None else _using(changed, m.cpu_s_per_1000_samples)
