"""What loading costs, from candidates of a sweep that were measured. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from statistics import fmean

from pipetune.augmentation.recipes import DEVICE
from pipetune.predicting.model import Costs, Setting, crowding, slowdown, supply_of, without
from pipetune.records.sweep import Candidate, Measurement, Outcome
from pipetune.registry import THREADS, TORCH, find_backend

#: Contention before two worker counts were compared, and how far it is from that in other loaders (standard deviation).
#: With two processes on two cores an image took 3 % more CPU time than with one, in the median of 112 pairs of stored
#: candidates; medians of their seven grids are -2 to 9 % (``search_grids-*.json``). 4 % is near that, and rounded up.
CONTENTION, _CONTENTION_SD = 0.04, 0.03
#: Relative standard deviation of a CPU time per sample from one measurement.
_COST_SD = 0.04
#: From this share of what the accelerators take on, a rate says nothing of how fast the loader could be.
LOADER_LIMITED = 0.93
#: What workers wait for where nothing is known of it, as a share of their CPU time: queues, locks and files.
WAITING = 1.04
#: What worker processes add, as a share of loading with them: batches of floats or bytes in new shared memory, which
#: are handed over; less where memory is used again. Of floats, one worker beside none took 0 to 36 % more in stored
#: grids of four decoders (median 20 %); of bytes it is assumed.
PROCESS_SHARE = {"float32": 0.2, "uint8": 0.09}
_REUSED = 0.3
#: What batches of a kind usually take: about the medians over four decoders with crops of 224 px. In stored grids
#: (``search_grids-*.json``) bytes were 1.0 to 2.0 times as fast as floats, threads in place 1.3 to 2.4 times as fast as
#: processes with floats, and 0.9 to 1.5 times with bytes; with smaller crops all differ by less.
USUAL_COST = {
    ("float32", "collated"): 1.0, ("uint8", "collated"): 0.7, ("float32", "in place"): 0.65,
    ("uint8", "in place"): 0.6,
}  # fmt: skip
#: What a correction by one measurement may be, at most.
_MOST_CORRECTION = 2.0
#: Settings that say how many work, and not what each does.
_COUNTS = ("num_workers", "prefetch_depth")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A measured candidate."""

    candidate: Candidate
    measurement: Measurement

    @property
    def rate(self) -> float:
        """Samples per second; of workers that start anew with each epoch while they run."""
        return self.measurement.steady_samples_per_s or self.measurement.samples_per_s

    @property
    def demand_per_s(self) -> float | None:
        """What the accelerators took together at that time; ``None``: it is not known.

        The max ingestion rate is that of plain steps. Those that augment first are longer by what was measured.
        """
        full = self.measurement.full_samples_per_s
        return None if full is None else full / (1 + self.augmenting_share)

    @property
    def augmenting_share(self) -> float:
        """By what share a step is longer for augmenting its images first; 0 where it does not, or is not known to."""
        if self.candidate.transforms_on != DEVICE:
            return 0.0
        return max(0.0, self.measurement.step_slower_frac or 0.0)

    @property
    def loader_limited(self) -> bool:
        """The loader set the pace."""
        demand = self.demand_per_s
        return demand is not None and self.rate < LOADER_LIMITED * demand

    @property
    def load_s(self) -> float | None:
        """CPU time of loading per sample (s)."""
        cost = self.measurement.cpu_s_per_1000_samples
        return None if cost is None or cost <= 0 else cost / 1000

    @property
    def step_s(self) -> float:
        """CPU time of the training loop per sample (s); 0 where it is not known."""
        m = self.measurement
        return 0.0 if m.step_cores is None else max(0.0, m.step_cores) / self.rate


def measured(outcomes: Sequence[Outcome]) -> list[Seen]:
    """Those that were measured, ceilings left out."""
    return [
        Seen(candidate=outcome.candidate, measurement=outcome.measurement) for outcome in outcomes
        if outcome.role != "ceiling" and outcome.measurement is not None and outcome.measurement.samples_per_s > 0
    ]  # fmt: skip


def differing(one: Candidate, other: Candidate) -> list[str]:
    """Settings in which two differ, besides the number of workers and the depth of their queues."""
    names = [field.name for field in fields(one) if field.name not in _COUNTS]
    return [name for name in names if getattr(one, name) != getattr(other, name)]


def setting_of(candidate: Candidate, cores: float, ranks: int, *, blocking: bool = False) -> Setting:
    """A candidate, files in memory, on so many cores."""
    return Setting(cores=cores, workers=candidate.num_workers, ranks=ranks, blocking=blocking)


def costs_of(
    candidate: Candidate, seen: Sequence[Seen], *, cores: float, ranks: int = 1, blocking: bool = False,
    demand_per_s: float | None = None,
) -> Costs | None:  # fmt: skip
    """What the loader of a candidate costs, from those that differ in workers at most; ``None``: there are none.

    Args:
        cores: that could be used.
        demand_per_s: what the accelerators take together; ``None``: what they took when those were measured.
    """
    same = [one for one in seen if not differing(one.candidate, candidate) and one.load_s is not None]
    demand = demand_per_s or max((one.demand_per_s or 0.0 for one in seen), default=0.0)
    if not same or not demand:
        return None
    contention = _contention([one for one in same if one.candidate.num_workers] or same, cores, ranks)
    load_s, process_s = _load_and_process(same, contention, cores, ranks)
    costs = Costs(
        load_s=load_s, worker_s=WAITING * load_s, process_s=process_s,
        step_s=fmean(one.step_s for one in same), contention=contention,
        demand_per_s=demand / ranks,
    )  # fmt: skip
    telling = [one for one in same if one.loader_limited]
    if not telling:
        return costs
    nearest = min(telling, key=lambda one: apart(one.candidate.num_workers, candidate.num_workers))
    costs = replace(costs, worker_s=_worker_s(telling, costs, cores, ranks, blocking) or costs.worker_s)
    return fitted(costs, nearest, cores=cores, ranks=ranks, blocking=blocking)


def process_share(candidate: Candidate) -> float:
    """What worker processes usually add to a loader, as a share of what it takes with them."""
    if candidate.loader != TORCH:
        return 0.0
    share = PROCESS_SHARE[candidate.transfer]
    return share * _REUSED if candidate.in_place else share


def _load_and_process(same: Sequence[Seen], contention: float, cores: float, ranks: int) -> tuple[float, float]:
    """CPU time per sample with one busy core and workers, and what of it they add."""
    alone: list[float] = []
    with_workers: list[float] = []
    for one in same:
        each_s = (one.load_s or 0.0) / slowdown(contention, setting_of(one.candidate, cores, ranks))
        if not one.candidate.num_workers:
            each_s = min(each_s, ranks / one.rate)  # threads of a library that spin meanwhile do not load
        (with_workers if one.candidate.num_workers else alone).append(each_s)
    share = process_share(same[0].candidate)
    if not with_workers:
        load_s = fmean(alone) / (1 - share)
        return load_s, share * load_s
    load_s = fmean(with_workers)
    return load_s, max(0.0, load_s - fmean(alone)) if alone else share * load_s


def fitted(costs: Costs, one: Seen, *, cores: float, ranks: int = 1, blocking: bool = False) -> Costs:
    """The costs with which the model gives what was measured of a candidate that the loader limited."""
    setting = setting_of(one.candidate, cores, ranks, blocking=blocking)
    supply = without(one.rate, one.demand_per_s or math.inf)
    factor = supply / supply_of(costs, setting)
    return costs.faster(min(_MOST_CORRECTION, max(1 / _MOST_CORRECTION, factor)))


def scaled_to(costs: Costs, candidate: Candidate, of: Candidate) -> Costs:
    """What another decoder, loader or kind of batch would cost, by what each usually takes."""
    backends = find_backend(of.backend).usual_cost / find_backend(candidate.backend).usual_cost
    scaled = costs.faster(backends * _usual_cost(of) / _usual_cost(candidate))
    return replace(scaled, process_s=process_share(candidate) * scaled.load_s)


def _usual_cost(candidate: Candidate) -> float:
    """CPU time beside that of the same decoder in processes that make batches of floats in new memory."""
    if candidate.loader not in (TORCH, THREADS):
        return 1.0
    kind = "in place" if candidate.in_place else "collated"
    return USUAL_COST[candidate.transfer, kind]


def _contention(same: Sequence[Seen], cores: float, ranks: int) -> float:
    """By the slope of CPU time over busy cores, as far as it is known better than what is usual."""
    by_turns = [slowdown(0.0, setting_of(one.candidate, cores, ranks)) for one in same]
    points = [
        (crowding(_busy(one.candidate, cores, ranks)), (one.load_s or 0.0) / slower)
        for one, slower in zip(same, by_turns, strict=True)
    ]
    x, y = fmean(busy for busy, _ in points), fmean(cost for _, cost in points)
    spread = sum((busy - x) ** 2 for busy, _ in points)
    if not spread or not y:
        return CONTENTION
    steep = sum((busy - x) * (cost - y) for busy, cost in points) / spread
    one_core = y - steep * x
    slope = steep / one_core if one_core > 0 else CONTENTION
    variance, usual = _COST_SD**2 / spread, _CONTENTION_SD**2
    return max(0.0, (slope * usual + CONTENTION * variance) / (usual + variance))


def _worker_s(telling: Sequence[Seen], costs: Costs, cores: float, ranks: int, blocking: bool) -> float | None:
    """Time per sample of a worker with a core to itself; ``None``: in all of them cores were short."""
    found = []
    for one in telling:
        workers = one.candidate.num_workers
        if ranks * max(1, workers) > cores:
            continue
        supply = without(one.rate, one.demand_per_s or math.inf)
        if math.isinf(supply):
            continue
        step_s = 0.0 if workers else ranks / (one.demand_per_s or math.inf) if blocking else costs.step_s
        each_s = ranks * max(1, workers) / supply - step_s
        each_s /= 1 + costs.contention * crowding(_busy(one.candidate, cores, ranks))
        found.append(each_s + (0.0 if workers else costs.process_s))
    # Where all cores are busy it is longer than with a core to itself. It may be shorter than the CPU time, which
    # other threads of the worker and the training process share.
    return min(found) if found else None


def _busy(candidate: Candidate, cores: float, ranks: int) -> float:
    return max(1.0, min(cores, ranks * max(1, candidate.num_workers)))


def apart(one: int, other: int) -> float:
    """How unlike two worker counts are: none is unlike any."""
    return abs(math.log(max(1, one) / max(1, other))) + (1.0 if bool(one) != bool(other) else 0.0)
