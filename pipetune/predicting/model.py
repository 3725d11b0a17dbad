"""The rate of a loader beside its accelerators, from what each limits. Pure.

The rate is a smooth minimum of what the accelerators take, what all cores can decode, what the workers can, what is
handed over, and what storage delivers. CPU time per sample grows with the number of busy cores, which share memory and
caches, by one parameter that two worker counts show. Workers that read and decode in turn are customers of a closed
queueing network of one disk and as many cores as there are workers, solved by exact mean value analysis (Reiser and
Lavenberg, Journal of the ACM 27, 1980).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pipetune.records.explanation import ACCELERATOR, HAND_OVER, STORAGE

CORES, WORKERS = "cores", "workers"
#: Everything that can set the pace.
RATE_LIMITS = (ACCELERATOR, CORES, WORKERS, HAND_OVER, STORAGE)
#: The exponent of the smooth minimum: two limits that are the same give 0.958 of either, one that is 20 % higher takes
#: 0.3 % of the other.
_SHARPNESS = 16.0
#: Share by which loading takes longer each time that there are twice as many workers as cores: those that take turns
#: find caches cold. Of 49 loaders in stored grids, four workers on two cores had 0.97 times the rate of two in the
#: median (0.87 to 1.18 in 8 of 10, ``search_grids-*.json``), where more of them alone would bring the limit of the
#: cores 4 % nearer.
OVERSUBSCRIBED = 0.07
#: Cores are what is short, and not workers, from as many workers on as keep this share of the cores busy.
_CORES_BUSY = 0.9
#: A step that takes this share of the time of a process that loads for itself is what sets its pace.
_MOSTLY = 0.95
#: Of loading this share is left at least when nothing is handed over.
_LEAST_LEFT = 0.2
#: More readers than this make no difference to a disk.
_MOST_CUSTOMERS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What loading one sample takes, and what takes the samples."""

    load_s: float
    """CPU time (s) while one core is busy."""
    worker_s: float
    """Time of one worker (s) that has a core to itself, waiting included, while no other is busy."""
    step_s: float = 0.0
    """CPU time of the training loop itself (s)."""
    process_s: float = 0.0
    """Of the first two, what worker processes add: batches in shared memory, which are handed over."""
    contention: float = 0.0
    """Share by which both of the first grow each time that the number of busy cores doubles."""
    hand_over_per_s: float | None = None
    """What the workers of one rank can hand over (samples/s); ``None``: it is not known, and taken as no limit."""
    demand_per_s: float
    """What one accelerator takes (samples/s)."""

    def faster(self, factor: float) -> Costs:
        """With loading that much faster."""
        return replace(
            self, load_s=self.load_s / factor, worker_s=self.worker_s / factor, process_s=self.process_s / factor
        )

    def without_processes(self) -> Costs:
        """Of the training process, which loads for itself."""
        return replace(
            self, load_s=max(_LEAST_LEFT * self.load_s, self.load_s - self.process_s), process_s=0.0,
            worker_s=max(_LEAST_LEFT * self.worker_s, self.worker_s - self.process_s),
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a rate is asked for."""

    cores: float
    workers: int
    """Of each rank; 0: the training process loads."""
    ranks: int = 1
    storage_per_s: float | None = None
    """Samples per second that storage delivers, hits in memory included; ``None``: all files are in memory."""
    queueing: bool = True
    """A worker waits while storage serves it; ``False``: storage is limited by a rate that is granted in advance, and
    serves at once while that lasts."""
    blocking: bool = False
    """A training step keeps the training process."""


def limits_of(costs: Costs, setting: Setting) -> dict[str, float]:
    """What each would allow by itself (samples/s of all ranks)."""
    costs = costs if setting.workers else costs.without_processes()
    slower = slowdown(costs.contention, setting)
    found = {
        ACCELERATOR: setting.ranks * costs.demand_per_s,
        CORES: setting.cores / (costs.load_s * slower + costs.step_s),
        WORKERS: _by_workers(costs, setting, slower),
    }
    if costs.hand_over_per_s is not None and setting.workers:
        found[HAND_OVER] = setting.ranks * costs.hand_over_per_s
    if setting.storage_per_s is not None:
        found[STORAGE] = setting.storage_per_s
    return found


def supply_of(costs: Costs, setting: Setting) -> float:
    """What the loader can deliver (samples/s of all ranks), whatever takes it."""
    limits = limits_of(costs, setting)
    if STORAGE in limits and setting.queueing:
        # Where cores are short, so is the time of each worker.
        each_s = setting.ranks * max(1, setting.workers) / smooth_minimum(limits[CORES], limits[WORKERS])
        readers = setting.ranks * max(1, setting.workers)
        loading = throughput(readers, delay_s=each_s, service_s=1 / limits[STORAGE])
    else:
        loading = smooth_minimum(limits[CORES], limits[WORKERS], limits.get(STORAGE, math.inf))
    return smooth_minimum(loading, limits.get(HAND_OVER, math.inf))


def rate_of(costs: Costs, setting: Setting, *, supply_factor: float = 1.0, demand_factor: float = 1.0) -> float:
    """The rate beside the accelerators (samples/s of all ranks).

    Args:
        supply_factor: the loader is that much faster than thought.
        demand_factor: the same of the accelerators.
    """
    demand = demand_factor * setting.ranks * costs.demand_per_s
    if setting.blocking and not setting.workers:
        return min(supply_factor * supply_of(costs, setting), demand)  # which is in the supply already
    return smooth_minimum(supply_factor * supply_of(costs, setting), demand)


def binding(costs: Costs, setting: Setting) -> tuple[str, str | None]:
    """What sets the pace, and what would be next."""
    limits = limits_of(costs, setting)
    first, after = _lowest(limits)
    if setting.blocking and not setting.workers and limits[WORKERS] >= _MOSTLY * limits[ACCELERATOR]:
        return ACCELERATOR, WORKERS
    if first == ACCELERATOR and supply_of(costs, setting) < limits[ACCELERATOR]:
        # Each stage by itself would do, but readers that wait for a disk do not decode meanwhile.
        first, after = _lowest({name: limit for name, limit in limits.items() if name != ACCELERATOR})[0], ACCELERATOR
    return first, after


def _lowest(limits: Mapping[str, float]) -> tuple[str, str | None]:
    lowest = dict(limits)
    # With as many workers as cores both are short alike: then it is the cores.
    if lowest[WORKERS] <= lowest[CORES] and lowest[WORKERS] >= _CORES_BUSY * lowest[CORES]:
        lowest[CORES] = lowest.pop(WORKERS)
    elif lowest[CORES] <= lowest[WORKERS]:
        lowest.pop(WORKERS)
    first, *others = sorted(lowest, key=lambda name: lowest[name])
    return first, others[0] if others else None


def slowdown(contention: float, setting: Setting) -> float:
    """How much more each sample takes with as many busy cores, and with workers that take turns on them."""
    workers = setting.ranks * max(1, setting.workers)
    busy = 1 + contention * crowding(min(setting.cores, workers))
    return busy * (1 + OVERSUBSCRIBED * crowding(workers / max(1.0, setting.cores)))


def crowding(busy: float) -> float:
    """How often the number of busy cores has doubled.

    Why not the number itself, as the Universal Scalability Law has it (Gunther, "Guerrilla Capacity Planning", ch. 4):
    what one and two cores show would make 64 cores 3.5 times as slow each, which no decoder is.
    """
    return math.log2(max(1.0, busy))


def smooth_minimum(*values: float) -> float:
    """Near the smallest of them, and below it where others come close. Infinite ones do not count."""
    least = min(values)
    if not 0 < least < math.inf:
        return least
    return float(least * sum((least / value) ** _SHARPNESS for value in values) ** (-1 / _SHARPNESS))


def without(rate: float, limit: float) -> float:
    """What the smooth minimum with ``limit`` makes ``rate`` of; infinite where ``rate`` is as large as the limit."""
    rest = rate**-_SHARPNESS - limit**-_SHARPNESS
    return float(rest ** (-1 / _SHARPNESS)) if rest > 0 else math.inf


def throughput(customers: int, *, delay_s: float, service_s: float) -> float:
    """Samples per second of readers that each take ``delay_s`` for a sample and queue ``service_s`` for its file."""
    waiting, rate = 0.0, 0.0
    for count in range(1, min(customers, _MOST_CUSTOMERS) + 1):
        in_queue_s = service_s * (1 + waiting)
        rate = count / (delay_s + in_queue_s)
        waiting = rate * in_queue_s
    return rate


def _by_workers(costs: Costs, setting: Setting, slower: float) -> float:
    each_s = costs.worker_s * slower
    if setting.workers:
        return setting.ranks * setting.workers / each_s
    # In turn with the steps, in each training process.
    step_s = 1 / costs.demand_per_s if setting.blocking else costs.step_s
    return setting.ranks / (each_s + step_s)
