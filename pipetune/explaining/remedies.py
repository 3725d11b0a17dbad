"""What would lift a loader's rate, the cheapest change first, each with the rate that it would bring. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator

from pipetune.candidates.describe import describe
from pipetune.explaining.facts import Facts
from pipetune.explaining.verdict import CORES, HANDING_OVER, RESTARTS, STORAGE_BOUND, UNEVEN, WAITS, WORKERS, Verdict
from pipetune.records.explanation import AUGMENT, COLD, COLLATE, FETCH, HAND_OVER, STORAGE, WITH_ACCELERATOR, Remedy

#: A change that would bring less than this much more is not worth a line.
_LEAST_GAIN = 1.05
#: Storage that delivers this much more than the loader takes from it could serve more workers.
_MORE_THERE = 1.1
#: Limits that a change of the loader or of the machine could lift.
_CAN_BE_LIFTED = (STORAGE_BOUND, CORES, WORKERS, WAITS, RESTARTS, UNEVEN)


def remedies_of(facts: Facts, verdict: Verdict) -> tuple[Remedy, ...]:
    """The changes; ``()``: nothing needs to be lifted, or nothing is known that would."""
    now, demand = facts.rate(WITH_ACCELERATOR), facts.demand
    if now is None or demand is None or facts.supply is None:
        return ()
    found = [*_measured(facts, now)]
    if verdict.bound_by in _CAN_BE_LIFTED:
        found = [*_settings(facts, verdict, demand), *found, *_hardware(facts, verdict, demand)]
    elif verdict.bound_by != HANDING_OVER:
        return ()
    return tuple(remedy for remedy in found if remedy.samples_per_s >= _LEAST_GAIN * now)


def _settings(facts: Facts, verdict: Verdict, demand: float) -> Iterator[Remedy]:
    """Changes that cost nothing but a number in the configuration."""
    c, each = facts.candidate, "" if facts.ranks == 1 else " in each rank"
    supply = facts.supply or 0.0
    if verdict.bound_by == RESTARTS:
        yield Remedy(change=f"persistent_workers=True{each}", samples_per_s=min(demand, supply), how="predicted")
    elif verdict.bound_by == UNEVEN and c.num_workers:
        depth = 2 * max(1, c.prefetch_depth)
        change = f"a deeper queue: prefetch_factor {c.prefetch_depth} -> {depth}{each}"
        if facts.own:
            change += ", or persistent_workers=True where it is not set"
        yield Remedy(change=change, samples_per_s=min(demand, supply), how="predicted")
    elif verdict.bound_by in (WORKERS, UNEVEN):
        yield from _more_workers(facts, demand, each)
        yield from _memory_reused(facts, demand)
        yield from _augmented_on_device(facts, demand)
    elif verdict.bound_by == CORES:
        yield from _memory_reused(facts, demand)
        yield from _augmented_on_device(facts, demand)
    elif verdict.bound_by == STORAGE_BOUND:
        storage, cold = facts.rate(STORAGE), facts.rate(COLD)
        if storage is not None and cold is not None and storage > _MORE_THERE * cold:
            yield Remedy(change=f"more workers than {c.num_workers}{each}, which read while others decode",
                         samples_per_s=min(demand, supply, storage), how="predicted")  # fmt: skip


def _more_workers(facts: Facts, demand: float, each: str) -> Iterator[Remedy]:
    """As many as the demand needs, and no more than there are cores."""
    c, alone = facts.candidate, facts.rate(FETCH) or 0.0
    per_worker = alone / max(facts.ranks, facts.workers)
    most = max(1, math.floor(facts.usable_cores / facts.ranks))
    wanted = min(most, max(c.num_workers + 1, math.ceil(demand / per_worker / facts.ranks - 0.05)))
    if wanted > c.num_workers:
        rate = min(demand, per_worker * wanted * facts.ranks)
        rate = rate if facts.by_cores is None else min(rate, facts.by_cores)
        yield Remedy(change=f"num_workers {c.num_workers} -> {wanted}{each}", samples_per_s=rate, how="predicted")


def _memory_reused(facts: Facts, demand: float) -> Iterator[Remedy]:
    """Without new memory for each batch, which is what collating and handing over mostly take."""
    c, alone = facts.candidate, facts.rate(FETCH)
    saved = sum(one.cpu_s_per_1000_samples for one in facts.stages if set(one.stages) <= {COLLATE, HAND_OVER})
    if facts.own or c.in_place or not c.num_workers or alone is None or not 0 < saved / 1000 < facts.load_s:
        return
    left_s = facts.load_s - saved / 1000
    rate = min(demand, alone * facts.load_s / left_s, facts.usable_cores / (left_s + facts.step_s))
    yield Remedy(change="batches in memory that is used again (reuse_buffers, pipetune.open_loader)",
                 samples_per_s=rate, how="predicted")  # fmt: skip


def _augmented_on_device(facts: Facts, demand: float) -> Iterator[Remedy]:
    """Without augmenting in the workers; the accelerator takes longer for each step then."""
    saved_s = sum(cost.cpu_s_per_1000_samples for cost in facts.stages if cost.stages == (AUGMENT,)) / 1000
    alone, augmenting_s = facts.rate(FETCH), facts.augmenting_s
    if alone is None or augmenting_s is None or not 0 < saved_s < facts.load_s:
        return
    left_s = facts.load_s - saved_s
    supply = min(alone * facts.load_s / left_s, facts.usable_cores / (left_s + facts.step_s))
    rate = min(1 / (1 / demand + augmenting_s), supply)
    yield Remedy(change="images augmented on the device (transforms_on=device, loader.to_training)",
                 samples_per_s=rate, how="predicted")  # fmt: skip


def _measured(facts: Facts, now: float) -> Iterator[Remedy]:
    """The fastest other candidate of the sweep, where it is faster for certain."""
    others = [
        (outcome.candidate, outcome.measurement) for outcome in facts.swept
        if outcome.measurement is not None and outcome.role != "ceiling" and outcome.candidate != facts.candidate
    ]  # fmt: skip
    if not others:
        return
    candidate, m = max(others, key=lambda pair: pair[1].samples_per_s)
    if m.ci95[0] > now:
        yield Remedy(change=describe(candidate), samples_per_s=m.samples_per_s, how="measured")


def _hardware(facts: Facts, verdict: Verdict, demand: float) -> Iterator[Remedy]:
    """Changes that take other hardware."""
    supply = facts.supply or 0.0
    if verdict.bound_by == STORAGE_BOUND:
        rate, storage, size = min(demand, supply), facts.rate(STORAGE), facts.mean_bytes
        yield Remedy(change="files in memory, where all of them fit", samples_per_s=rate, how="predicted")
        # Where it delivers enough, workers wait for each file before they decode it: faster storage is not missing.
        if storage and size and rate > storage:
            flows = f"{rate * size / 1e6:,.0f} MB/s in place of {storage * size / 1e6:,.0f}"
            yield Remedy(change=f"storage that delivers {flows}", samples_per_s=rate, how="predicted")
    elif verdict.bound_by in (CORES, WORKERS) and facts.load_s > 0:
        needed = math.ceil(demand * (facts.load_s + facts.step_s) - 0.05)
        if needed > facts.usable_cores:
            yield Remedy(change=f"{needed} cores in place of {facts.usable_cores:g}, and as many workers",
                         samples_per_s=demand, how="predicted")  # fmt: skip
