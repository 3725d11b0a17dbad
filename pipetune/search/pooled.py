"""A sweep's outcomes pooled: one per candidate, all corrected to the machine's present speed. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from statistics import median
from typing import Any, TypeVar

from pipetune.candidates.space import Space
from pipetune.records.sweep import Candidate, Goal, HostShare, Measurement, Outcome, RankShare
from pipetune.registry import SCRIPT
from pipetune.stats.intervals import median_interval
from pipetune.stats.noise import felt_frac, loader_share, lost_to_loader, scatter_of_runs, waiting_frac

_Share = TypeVar("_Share", RankShare, HostShare)

#: The baseline in words where it is nothing of the user's.
UNTUNED_NAME = "PyTorch's default"
#: A change of the machine's speed by more than this share is corrected. Why: its readings scatter by a few per cent
#: (benchmarks/measuring/noise_floor.py).
CHANGED_SPEED = 0.08
#: Number of newest measurements whose median is the machine's present speed.
NEWEST = 3
#: Share of time lost to the loader below which it may have had capacity to spare, by an unknown amount.
_FED = 0.02
#: Share of what the target allows to be lost, up to which waiting cannot be what makes a script miss it.
_HARDLY_WAITS = 0.5


def baseline(space: Space) -> Candidate:
    """The candidate that an untuned script is: PyTorch's DataLoader defaults with ImageFolder's Pillow loader.

    Of the user's own script, it is what that has now.
    """
    return space.untuned or Candidate(
        backend=space.default_backend, num_workers=0, prefetch_depth=0, batch_size=space.batch_size
    )


def untuned_name(space: Space) -> str:
    """The baseline in words, before a comma or a verb."""
    if space.untuned is None:
        return UNTUNED_NAME
    return "your script as it is" if space.untuned.backend == SCRIPT.name else "your loader as it is"


def achieved(measurement: Measurement, goal: Goal) -> float | None:
    """Goodput, or GPU utilisation where that is the goal's metric (0..1); ``None`` if it was not measured."""
    if goal.metric == "nvml":
        return None if measurement.gpu_util_pct is None else measurement.gpu_util_pct / 100
    return measurement.goodput


def achieved_ci95(measurement: Measurement, goal: Goal) -> tuple[float, float] | None:
    """95 % interval of :func:`achieved`; ``None`` if it is not known."""
    if goal.metric == "nvml":
        interval = measurement.gpu_util_ci95
        return None if interval is None else (interval[0] / 100, interval[1] / 100)
    return measurement.goodput_ci95


def rate_at_target(measurement: Measurement, goal: Goal) -> float | None:
    """The rate that reaches the target (samples/s); ``None``: what was achieved is not known."""
    full = measurement.full_samples_per_s
    if goal.metric != "nvml":
        return None if full is None else goal.target * full
    share = achieved(measurement, goal)
    return measurement.samples_per_s * goal.target / share if share else None


def meets(measurement: Measurement, goal: Goal) -> bool:
    """Whether the point estimate reaches the target."""
    share = achieved(measurement, goal)
    return share is not None and share >= goal.target


def is_inconclusive(measurement: Measurement, goal: Goal) -> bool:
    """Whether the target lies inside the 95 % interval of what was achieved, so that chance may have decided."""
    interval = achieved_ci95(measurement, goal)
    return interval is not None and interval[0] < goal.target <= interval[1]


def is_clearly_sufficient(measurement: Measurement, goal: Goal, space: Space) -> bool:
    """Whether it reaches the target beyond doubt: with its whole interval; or, in a script, because its loop was hardly
    seen to wait.

    Why the second: a share of the ceiling has the scatter of two measurements, of slow training steps often more than
    20 %, while the wait of a loop is read directly.
    """
    if not meets(measurement, goal):
        return False
    if not is_inconclusive(measurement, goal):
        return True
    hardly_waits = waiting_frac(measurement) <= _HARDLY_WAITS * (1 - goal.target)
    return space.confirm_alone and goal.metric == "goodput" and hardly_waits


def cores_of(outcome: Outcome, measurement: Measurement) -> float:
    """Cores in use (CPU seconds per second); the number of workers where that was not measured."""
    return measurement.cores_used if measurement.cores_used is not None else max(1, outcome.candidate.num_workers)


def pool(outcomes: Sequence[Outcome], goal: Goal) -> dict[str, Outcome]:
    """One outcome per candidate, by its key, as it would be at the machine's present speed: the base of every choice.

    As :func:`latest`, but a first measurement that missed the goal is merged with those made in blocks. Why: a
    candidate that met the goal at first may have been chosen because chance favoured it, one that missed it was not.
    """
    missed = [outcome.measurement is not None and not meets(outcome.measurement, goal) for outcome in outcomes]
    return _newest(at_present_speed(outcomes), missed)


def latest(outcomes: Sequence[Outcome]) -> dict[str, Outcome]:
    """One outcome per candidate, by its key, as measured: the base of every report. The ceiling is left out.

    A repeat replaces what was measured before, and measurements made in blocks are merged. A repeat that failed
    replaces no measurement, unless the candidate failed in more than half of its measurements, or in the newest start
    of the user's script that had its settings from the beginning: a training would fail as well.
    """
    return _newest(outcomes, [False] * len(outcomes))


def _newest(outcomes: Sequence[Outcome], counts: Sequence[bool]) -> dict[str, Outcome]:
    """One outcome per candidate, the newest or merged one.

    Args:
        counts: per outcome, whether an unblocked first measurement is merged with the blocked ones.
    """
    newest: dict[str, Outcome] = {}
    failed: dict[str, list[Outcome]] = {}
    started: dict[str, Outcome] = {}
    times = Counter(outcome.candidate.key for outcome in outcomes if outcome.role != "ceiling")
    repeats: dict[str, dict[int, Outcome]] = {}
    for outcome, as_first in zip(outcomes, counts, strict=True):
        key = outcome.candidate.key
        before = newest.get(key)
        if outcome.failure and outcome.role != "ceiling":
            failed.setdefault(key, []).append(outcome)
        if outcome.role == "candidate" and outcome.candidate.backend == SCRIPT.name and not outcome.forked:
            started[key] = outcome
        if outcome.role == "ceiling" or not (outcome.measurement or before is None or before.measurement is None):
            continue
        newest[key] = outcome
        if outcome.measurement is None:
            continue
        # The default was not chosen for its rate; unless it ended early, its first measurement counts like a block's.
        in_full = outcome.role == "baseline" and not outcome.measurement.ended_early
        if outcome.block or in_full or as_first:
            repeats.setdefault(key, {})[outcome.block] = outcome
        else:
            repeats.get(key, {}).pop(0, None)
        if outcome.block:
            newest[key] = merged(list(repeats[key].values()))
    often = {key: found[-1] for key, found in failed.items() if len(found) > times[key] / 2}
    unfit = {key: outcome for key, outcome in started.items() if outcome.failure is not None}
    return {**newest, **often, **unfit}


def merged(outcomes: Sequence[Outcome]) -> Outcome:
    """Several measurements of one candidate as one: their medians, which a single outlier does not move.

    Of memory the most that was seen, because a limit has to hold each time.
    """
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
        gpu_util_pct=typical(lambda m: m.gpu_util_pct),
        gpu_util_ci95=interval(lambda m: m.gpu_util_pct, lambda m: m.gpu_util_ci95),
        cores_used=typical(lambda m: m.cores_used),
        cpu_s_per_1000_samples=typical(lambda m: m.cpu_s_per_1000_samples), step_cores=typical(lambda m: m.step_cores),
        accelerator_idle_frac=typical(lambda m: m.accelerator_idle_frac),
        data_wait_frac=typical(lambda m: m.data_wait_frac),
        others_wait_frac=typical(lambda m: m.others_wait_frac),
        ranks=_merged_shares([m.ranks for m in found]), hosts=_merged_shares([m.hosts for m in found]),
        pss_bytes=max((m.pss_bytes for m in found if m.pss_bytes is not None), default=None),
    ))  # fmt: skip


def _merged_shares(found: Sequence[tuple[_Share, ...]]) -> tuple[_Share, ...]:
    """Medians of each rank or host; those of the newest measurement where not all have the same ones."""
    if len({len(shares) for shares in found}) > 1:
        return found[-1]
    return tuple(replace(same[-1], **_medians(same)) for same in zip(*found, strict=True))


def _medians(same: Sequence[RankShare | HostShare]) -> dict[str, Any]:
    """Of all fractions and rates; of a field that one of them lacks ``None``."""
    found: dict[str, Any] = {}
    for field in fields(same[-1]):
        values = [getattr(share, field.name) for share in same]
        if None in values:
            found[field.name] = None
        elif isinstance(values[-1], float):
            found[field.name] = median(values)
        elif isinstance(values[-1], tuple):
            found[field.name] = tuple(median(ends) for ends in zip(*values, strict=True))
    return found


def noise_of(outcomes: Sequence[Outcome]) -> float:
    """Relative standard deviation between repetitions, by all outcomes of the sweep so far, as measured."""
    return scatter_of_runs(
        (outcome.measurement for outcome in outcomes), repetitions(outcomes), expected_felt_frac(outcomes)
    )


def expected_felt_frac(outcomes: Sequence[Outcome], candidate: Candidate | None = None) -> float:
    """To which degree a rate that is measured next will follow the machine's speed (0..1).

    As far as it did when the candidate was last measured; else as far as the most that any candidate's rate did, and 1
    where there was none.

    Args:
        candidate: that is measured; ``None``: any.
    """
    measured = [o for o in outcomes if o.measurement is not None and o.role != "ceiling"]
    newest = [o for o in measured if o.candidate == candidate][-1:]
    return max((felt_frac(o.measurement) for o in newest or measured if o.measurement is not None), default=1.0)


def repetitions(outcomes: Sequence[Outcome]) -> list[list[Measurement]]:
    """The measurements of each candidate. A change of the machine's speed that was seen is no scatter of theirs."""
    found: dict[str, list[Measurement]] = {}
    for outcome in at_present_speed(outcomes):
        if outcome.measurement is not None and outcome.role != "ceiling":
            found.setdefault(outcome.candidate.key, []).append(outcome.measurement)
    return list(found.values())


def speed_of(measurement: Measurement) -> float:
    """The machine's speed during a measurement: MB/s of the fixed decode loop."""
    return (measurement.machine_speed_before + measurement.machine_speed_after) / 2


def felt_change(measurement: Measurement, now: float) -> float:
    """By which share a rate would change at most, if the machine's speed changed from that of its measurement to now.

    Args:
        now: MB/s of the fixed decode loop.
    """
    return felt_frac(measurement) * (now / speed_of(measurement) - 1)


def present_speed(outcomes: Sequence[Outcome]) -> float | None:
    """The machine's speed now (MB/s of the fixed decode loop); ``None`` with too few measurements."""
    return _median_now(outcomes, speed_of)


def _median_now(outcomes: Sequence[Outcome], speed: Callable[[Measurement], float | None]) -> float | None:
    measured = [o.measurement for o in outcomes if o.measurement is not None and o.role != "ceiling"]
    speeds = [found for found in map(speed, measured) if found is not None]
    return median(speeds[-NEWEST:]) if len(speeds) > NEWEST else None


def at_present_speed(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Outcomes as they would be at the machine's present speed.

    The rate of a loader that computes follows the machine's speed, that of an accelerator or of a loader that waits for
    something else does not: a rate is corrected to the degree to which the loader limited it and used the cores, and
    its interval grows by half of the correction, so that the candidates that decide are measured again. CPU time per
    image follows the clock of the cores only; waiting for a core does not change it.
    """
    now = present_speed(outcomes)
    if now is None:
        return list(outcomes)
    cpu_now = _median_now(outcomes, lambda m: m.machine_cpu_speed)
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
    """The measurement with another CPU time per image, at the same rate."""
    cores = None if cpu_s_per_1000_samples is None else m.samples_per_s * cpu_s_per_1000_samples / 1000
    return replace(m, cpu_s_per_1000_samples=cpu_s_per_1000_samples, cores_used=cores)


def _at_speed(m: Measurement, now: float) -> Measurement:
    change = felt_change(m, now)
    if abs(change) <= CHANGED_SPEED:
        return m
    bound = loader_share(waiting_frac(m), m.step_slower_frac)
    if change < 0:
        bound = 1.0 if lost_to_loader(m) > _FED else 0.5
    full = m.full_samples_per_s
    ceiling = m.samples_per_s * (1 + max(0.0, change)) if full is None else full
    factor = min(1 + change * bound, ceiling / m.samples_per_s)
    wider = abs(factor - 1) / 2

    def scaled(interval: tuple[float, float]) -> tuple[float, float]:
        return interval[0] * (factor - wider), interval[1] * (factor + wider)

    changed = replace(
        m, samples_per_s=m.samples_per_s * factor, ci95=scaled(m.ci95),
        goodput=None if m.goodput is None else m.goodput * factor,
        goodput_ci95=None if m.goodput_ci95 is None else scaled(m.goodput_ci95),
        gpu_util_pct=None if m.gpu_util_pct is None else min(100.0, m.gpu_util_pct * factor),
        gpu_util_ci95=None if m.gpu_util_ci95 is None else scaled(m.gpu_util_ci95),
    )  # fmt: skip
    return changed if m.cores_used is None else _using(changed, m.cpu_s_per_1000_samples)
