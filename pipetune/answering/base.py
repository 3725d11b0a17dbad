"""What a stored run tells of its loader: the ground on which questions are answered."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from pipetune.augmentation.recipes import DEVICE
from pipetune.datasets.index import ImageSet, read_index
from pipetune.errors import PipetuneError, UsageError
from pipetune.explaining.stored import explanation_of, workload_of
from pipetune.explaining.verdict import HANDING_OVER, RESTARTS, UNEVEN
from pipetune.predicting.candidates import own_errors
from pipetune.predicting.model import Costs, Setting, slowdown, supply_of, without
from pipetune.predicting.observed import (
    CONTENTION,
    LOADER_LIMITED,
    WAITING,
    Seen,
    costs_of,
    measured,
    process_share,
    setting_of,
)
from pipetune.records.explanation import (
    ACCELERATOR,
    COLD,
    COLLATE,
    FETCH,
    HAND_OVER,
    ON_DEVICE,
    STORAGE,
    TRANSFER,
    WITH_ACCELERATOR,
    Explanation,
    Part,
    StageCost,
)
from pipetune.records.sweep import Candidate, Outcome, Workload
from pipetune.registry import TORCH
from pipetune.runs.load import load
from pipetune.runs.run import EXPLAIN, SWEEP, Run
from pipetune.sweeping.stored import sweep_result

_DEFAULT_TARGET = 0.9
#: Below this share of the cores or workers in use, they were not what was short.
_IDLE = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """A loader that was measured."""

    path: Path
    candidate: Candidate
    workload: Workload
    cores: float
    costs: Costs
    measured_samples_per_s: float
    """Of all ranks, beside the accelerators."""
    images: ImageSet | None
    """``None``: of a loader of the user's own, or the index is gone."""
    target: float = _DEFAULT_TARGET
    host: dict[str, Any] = field(default_factory=dict)
    """The machine, as ``run.json`` has it."""
    storage_per_s: float | None = None
    """What storage delivered to as many readers (samples/s); ``None``: it was not measured."""
    cold: bool = False
    """It was measured with files that come from storage."""
    stages: tuple[StageCost, ...] = ()
    """``()``: the loader was not taken apart."""
    augmenting_s: float | None = None
    """Time that augmenting takes an accelerator per sample (s); ``None``: it was not measured."""
    augmenting_cpu_s: float = 0.0
    """CPU time that the training process needs for that per sample (s)."""
    pss_bytes: int | None = None
    """Memory of its processes."""
    cpu_speed: float | None = None
    """Speed of the machine in the run (MB per CPU second of a fixed loop of decoding); ``None``: it is not known."""
    errors: tuple[Outcome, ...] = ()
    """Outcomes with predictions, of which the run's own error is known."""

    @property
    def blocking(self) -> bool:
        """A training step keeps the training process."""
        return self.workload.accelerator.kind == "cpu"

    @property
    def ranks(self) -> int:
        """Training processes on the host."""
        return self.workload.ranks

    @property
    def setting(self) -> Setting:
        """As it was measured."""
        storage = self.storage_per_s if self.cold else None
        return replace(
            setting_of(self.candidate, self.cores, self.ranks, blocking=self.blocking), storage_per_s=storage
        )

    @property
    def mean_bytes(self) -> float | None:
        """Mean size of a file; ``None``: it is not known."""
        return self.images.mean_bytes or None if self.images is not None else None

    @property
    def images_in_all(self) -> int:
        """Images of the data set, those included of which the run has taken no notice."""
        return 0 if self.images is None else max(self.images.found_images, len(self.images.images))

    def own_errors(self, kind: str | None = None) -> list[float]:
        """Log errors of the run's own predictions."""
        return own_errors(self.errors, kind)


def base_of(path: Path, key: str | None) -> Base:
    """Read a run.

    Args:
        path: the folder of a sweep or of an explanation.
        key: of the loader; ``None``: the recommended one, or the one that was explained.

    Raises:
        UsageError: it is no such run, it has no such candidate, or too little of it was measured.
    """
    run = load(path)
    if run.kind == EXPLAIN:
        if key is not None:
            raise UsageError(f"--candidate {key} is for a sweep, and {path} explains one loader", hint="omit it")
        return _of_explanation(run)
    if run.kind != SWEEP:
        raise UsageError(f"{path} is a run of pipetune {run.kind}, not of a sweep or of pipetune explain",
                         hint="pipetune sweep or pipetune explain measures what is needed")  # fmt: skip
    return _of_sweep(run, key)


def _of_sweep(run: Run, key: str | None) -> Base:
    result = sweep_result(run)
    seen = measured(result.ranking)
    outcome = _chosen(run, key, seen, recommended=result.recommended, default=result.baseline)
    m = outcome.measurement
    workload = workload_of(run)
    if result.script is not None and result.script.loader is not None:
        workload = replace(workload, ranks=result.script.loader.ranks)
    demand = outcome.demand_per_s or (None if result.ceiling is None or result.ceiling.measurement is None
                                      else result.ceiling.measurement.samples_per_s)  # fmt: skip
    blocking = workload.accelerator.kind == "cpu"
    costs = None if demand is None else costs_of(
        outcome.candidate, seen, cores=run.usable_cores, ranks=workload.ranks, blocking=blocking, demand_per_s=demand
    )  # fmt: skip
    if costs is None:
        raise UsageError(f"{run.path}: what loading costs is not known of {outcome.candidate.key}",
                         hint="its CPU time was not measured; start a new sweep")  # fmt: skip
    return Base(
        path=run.path, candidate=outcome.candidate, workload=workload, cores=run.usable_cores, costs=costs,
        measured_samples_per_s=outcome.rate, images=_images(run), target=result.goal.target,
        cold=workload.cache == "cold", pss_bytes=m.pss_bytes, errors=run.outcomes, host=run.info.get("host") or {},
        cpu_speed=speed_of(one for one in run.outcomes if one.candidate == outcome.candidate),
        augmenting_s=_augmenting_s(outcome, workload.ranks),
    )  # fmt: skip


def _augmenting_s(seen: Seen, ranks: int) -> float | None:
    """Time that augmenting takes an accelerator per sample (s), by how much longer its steps are."""
    full = seen.measurement.full_samples_per_s
    return ranks * seen.augmenting_share / full if full and seen.augmenting_share else None


def _chosen(
    run: Run, key: str | None, seen: list[Seen], *, recommended: Outcome | None, default: Outcome | None
) -> Seen:  # fmt: skip
    """The candidate that is meant.

    Raises:
        UsageError: there is no such one.
    """
    aliases = {"recommended": recommended, "default": default}
    named = {name: found.candidate.key for name, found in aliases.items() if found is not None and found.measurement}
    wanted = key or next(iter(named), None)
    wanted = named.get(wanted or "", wanted)
    for one in seen:
        if one.candidate.key == wanted:
            return one
    names = ", ".join([*named, *(one.candidate.key for one in seen)])
    raise UsageError(f"{run.path} has no measured candidate {wanted or ''}".rstrip(),
                     hint=f"there are: {names or 'none'}")  # fmt: skip


def _of_explanation(run: Run) -> Base:
    found = explanation_of(run)
    workload = workload_of(run)
    cores, ranks = run.usable_cores, workload.ranks
    accelerator, reached, alone = found.part(ACCELERATOR), found.part(WITH_ACCELERATOR), found.part(FETCH)
    if accelerator is None or reached is None or alone is None or not alone.cpu_s_per_1000_samples:
        raise UsageError(f"{run.path}: too little was measured to predict anything from it",
                         hint="pipetune explain measures it anew")  # fmt: skip
    copies = found.part(TRANSFER)
    demand = min(accelerator.samples_per_s, math.inf if copies is None else copies.samples_per_s)
    on_device = found.part(ON_DEVICE)
    augmenting_s = None if on_device is None else max(0.0, 1 / on_device.samples_per_s - 1 / accelerator.samples_per_s)
    if found.candidate.transforms_on == DEVICE and augmenting_s is not None:
        demand = 1 / (1 / demand + augmenting_s)
    sweep = _sweep_of(run)
    errors: tuple[Outcome, ...] = () if sweep is None else sweep.outcomes
    contention = _contention_of(sweep, found.candidate, cores, ranks, demand)
    costs = _costs_apart(found, accelerator, alone, demand / ranks, contention, cores, ranks)
    cold, storage = workload.cache == "cold", found.part(STORAGE)
    base = Base(
        path=run.path, candidate=found.candidate, workload=workload, cores=cores, costs=costs,
        measured_samples_per_s=reached.samples_per_s, images=_images(run), cold=cold,
        storage_per_s=None if storage is None else storage.samples_per_s, stages=found.stages,
        pss_bytes=_pss_of(run), errors=errors, target=_target_of(sweep),
        host=run.info.get("host") or {}, cpu_speed=speed_of(run.outcomes),
        augmenting_s=None if augmenting_s is None else ranks * augmenting_s,
        augmenting_cpu_s=_more_cpu_s(on_device, accelerator),
    )  # fmt: skip
    if found.bound_by in (UNEVEN, RESTARTS):
        return base  # the loader is fast enough, but does not come evenly: it does not decode more slowly
    return replace(base, costs=_fitted(base, found.part(COLD) if cold else None))


def _more_cpu_s(part: Part | None, than: Part) -> float:
    """CPU time per sample that one part needs more than another (s); 0 where that is not known."""
    costs = (None if part is None else part.cpu_s_per_1000_samples, than.cpu_s_per_1000_samples)
    return 0.0 if costs[0] is None or costs[1] is None else max(0.0, costs[0] - costs[1]) / 1000


def _costs_apart(
    found: Explanation, accelerator: Part, alone: Part, demand_per_s: float, contention: float, cores: float, ranks: int
) -> Costs:
    """Costs from the parts, with which the model gives the rate of the loader alone."""
    workers = found.candidate.num_workers
    setting = setting_of(found.candidate, cores, ranks)
    readers = ranks * max(1, workers)
    slower = slowdown(contention, setting)
    load_s = (alone.cpu_s_per_1000_samples or 0.0) / 1000 / slower
    worker_s = readers / alone.samples_per_s / slower if readers <= cores else WAITING * load_s
    process_s = _process_share(found) * load_s
    if not workers:  # what they would add is not in what was measured
        load_s, worker_s = load_s + process_s, worker_s + process_s
    costs = Costs(
        load_s=load_s, worker_s=worker_s, process_s=process_s, contention=contention, demand_per_s=demand_per_s
    )
    costs = costs.faster(alone.samples_per_s / supply_of(costs, setting))
    handed = found.part(HAND_OVER)
    # Where all cores or workers were busy handing over, it is their number that was short.
    if handed is not None and handed.cores_used is not None and handed.cores_used < _IDLE * min(cores, readers):
        # Where it does not bind, it is no tighter than what the loader alone has shown.
        least = 0.0 if found.bound_by == HANDING_OVER else 2 * alone.samples_per_s
        costs = replace(costs, hand_over_per_s=max(handed.samples_per_s, least) / ranks)
    return replace(costs, step_s=(accelerator.cpu_s_per_1000_samples or 0.0) / 1000)


def _process_share(found: Explanation) -> float:
    """What worker processes add, as a share of what was measured: collating into shared memory, and handing over."""
    candidate = found.candidate
    usual = process_share(candidate)
    if not candidate.num_workers:
        return usual / (1 - usual)
    each = {cost.stages: max(0.0, cost.cpu_s_per_1000_samples) for cost in found.stages}
    total = sum(each.values())
    if candidate.loader != TORCH or not total or (HAND_OVER,) not in each:
        return usual
    return sum(cost for names, cost in each.items() if set(names) <= {COLLATE, HAND_OVER}) / total


def _fitted(base: Base, from_storage: Part | None) -> Costs:
    """Costs with which the model gives the rate beside the accelerators, where the loader sets the pace."""
    costs, rate = base.costs, base.measured_samples_per_s
    demand = base.ranks * costs.demand_per_s
    if rate >= LOADER_LIMITED * demand or (base.cold and from_storage is None):
        return costs
    if base.cold and base.storage_per_s is not None:
        return costs  # storage has a rate of its own, which a correction of the loader must not mend
    factor = without(rate, demand) / supply_of(costs, base.setting)
    return costs.faster(min(1.5, max(1 / 1.5, factor)))


def speed_of(outcomes: Iterable[Outcome]) -> float | None:
    """Mean speed of the machine beside these measurements (MB per CPU second); ``None``: it was not kept."""
    speeds = [o.measurement.machine_cpu_speed for o in outcomes if o.measurement and o.measurement.machine_cpu_speed]
    return fmean(speeds) if speeds else None


def _images(run: Run) -> ImageSet | None:
    try:
        images = read_index(str(run.path / "index.json"))
    except PipetuneError:
        return None
    return images if images.images else None


def _sweep_of(run: Run) -> Run | None:
    """The sweep whose loader was explained; ``None``: there is none any more."""
    of = run.info.get("of")
    if not isinstance(of, str):
        return None
    try:
        sweep = load(of)
    except PipetuneError:
        return None
    return sweep if sweep.kind == SWEEP else None


def _contention_of(sweep: Run | None, candidate: Candidate, cores: float, ranks: int, demand: float) -> float:
    if sweep is None:
        return CONTENTION
    costs = costs_of(candidate, measured(sweep.outcomes), cores=cores, ranks=ranks, demand_per_s=demand)
    return CONTENTION if costs is None else costs.contention


def _target_of(sweep: Run | None) -> float:
    goal = None if sweep is None else sweep.info.get("goal")
    target = goal.get("target") if isinstance(goal, dict) else None
    return float(target) if isinstance(target, (int, float)) and 0 < target <= 1 else _DEFAULT_TARGET


def _pss_of(run: Run) -> int | None:
    found = [
        outcome.measurement.pss_bytes for outcome in run.outcomes
        if outcome.part == WITH_ACCELERATOR and outcome.measurement and outcome.measurement.pss_bytes
    ]  # fmt: skip
    return max(found, default=None)
