"""What sets a loader's pace, the figures that this rests on, and what would lift it. Pure.

The demand is the rate at which the accelerator takes batches that are ready; the supply is the rate of the loader
alone. Where the supply is smaller, what is short is found from the parts: storage, cores, workers, handing over, or
something that the workers wait for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pipetune.candidates.describe import describe
from pipetune.diagnosis.causes import CORES_BUSY_PCT, WORKERS_BUSY_FRAC
from pipetune.records.explanation import (
    ACCELERATOR,
    COLD,
    FETCH,
    HAND_OVER,
    LOOP,
    STAGES,
    STORAGE,
    TRANSFER,
    WITH_ACCELERATOR,
    Part,
    Remedy,
    StageCost,
)
from pipetune.records.sweep import Candidate, Outcome
from pipetune.units import format_rate, format_share

#: What can set the pace: the accelerator itself; copies to it; storage; all usable cores; too few workers; handing over
#: from the workers to the training loop; something that workers wait for without using a core; batches that come
#: unevenly, though fast enough in the mean; or it is not known.
ACCELERATOR_BOUND, TRANSFER_BOUND, STORAGE_BOUND, CORES, WORKERS, HANDING_OVER, WAITS, UNEVEN, UNKNOWN = LIMITS = (
    "accelerator", "transfer", "storage", "cores", "workers", "hand_over", "waits", "uneven", "unknown",
)  # fmt: skip
#: From this share of the accelerator's rate on, nothing is worth to be lifted.
_FED = 0.97
#: Files from storage slow a loader down where its rate is below this share of the one from memory.
_SLOWED = 0.9
#: A stage sets the pace where the loader without the stages before it is not faster than this factor.
_AS_FAST = 1.15
#: From this many cores on, what the training step takes is stated.
_STEP_CORES = 0.05
#: Copies cost the accelerator this share of its rate before they are named.
_COPIES = 0.05

#: Stages in words, as what is done and as what is taken from.
WORDS = {
    "fetch": "reading files", "decode": "decoding", "transform": "cropping, resizing and normalising",
    "collate": "collating", "hand_over": "handing batches over",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """See the fields of :class:`pipetune.records.explanation.Explanation`."""

    bound_by: str
    bound_stage: str | None
    sentence: str
    evidence: tuple[str, ...]
    remedies: tuple[Remedy, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a verdict is made from."""

    candidate: Candidate
    parts: tuple[Part, ...]
    stages: tuple[StageCost, ...]
    usable_cores: float
    mean_bytes: float
    """Mean size of a file; 0 where it is not known."""
    from_storage: bool
    """Files come from storage and not from the page cache."""
    ranks: int = 1
    swept: tuple[Outcome, ...] = ()
    """What a sweep has measured of other candidates, under the same conditions."""

    def rate(self, name: str) -> float | None:
        """Of a part (samples/s); ``None``: it was not measured."""
        return next((part.samples_per_s for part in self.parts if part.name == name), None)

    def part(self, name: str) -> Part | None:
        """One that was measured."""
        return next((part for part in self.parts if part.name == name), None)

    @property
    def demand(self) -> float | None:
        """What the accelerators take (samples/s), copies included."""
        rates = [rate for rate in (self.rate(ACCELERATOR), self.rate(TRANSFER)) if rate is not None]
        return min(rates, default=None)

    @property
    def workers(self) -> int:
        """Of all ranks."""
        return self.ranks * self.candidate.num_workers

    @property
    def step_s(self) -> float:
        """CPU time that the training loop itself takes per sample (s); 0 where it is not known."""
        part = self.part(ACCELERATOR)
        return 0.0 if part is None else (part.cpu_s_per_1000_samples or 0.0) / 1000

    @property
    def supply(self) -> float | None:
        """What the loader can deliver beside the training loop, files in memory (samples/s): its own rate, or what the
        cores leave it."""
        warm = self.part(FETCH)
        if warm is None:
            return None
        each_s = (warm.cpu_s_per_1000_samples or 0.0) / 1000 + self.step_s
        return min(warm.samples_per_s, self.usable_cores / each_s) if each_s else warm.samples_per_s


def name_of(stages: Sequence[str]) -> str:
    """Stages in words: ``'decoding, cropping, resizing and normalising'``."""
    return ", ".join(WORDS[stage] for stage in stages) if tuple(stages) != STAGES else "loading"


def judge(facts: Facts) -> Verdict:
    """The verdict."""
    bound, stage = _bound(facts)
    return Verdict(
        bound_by=bound, bound_stage=stage, sentence=_sentence(facts, bound, stage), evidence=_evidence(facts),
        remedies=_remedies(facts, bound),
    )  # fmt: skip


def _bound(facts: Facts) -> tuple[str, str | None]:
    demand, warm = facts.demand, facts.part(FETCH)
    reached = facts.rate(WITH_ACCELERATOR)
    if demand is None or reached is None:
        return UNKNOWN, None
    if reached >= _FED * demand:
        copies = facts.rate(TRANSFER)
        alone = facts.rate(ACCELERATOR)
        slow_copies = copies is not None and alone is not None and copies < (1 - _COPIES) * alone
        return (TRANSFER_BOUND if slow_copies else ACCELERATOR_BOUND), None
    if warm is None:
        return UNKNOWN, None
    cold = facts.rate(COLD)
    if facts.from_storage and cold is not None and cold < _SLOWED * warm.samples_per_s and cold < demand:
        return STORAGE_BOUND, FETCH
    if (facts.supply or 0.0) * _FED >= demand:
        return UNEVEN, None
    return _bound_from_memory(facts, warm, reached)


def _bound_from_memory(facts: Facts, warm: Part, reached: float) -> tuple[str, str | None]:
    handing_over, loop = facts.rate(HAND_OVER), facts.rate(LOOP)
    # As fast as the training loop can ask for batches is not slow.
    at_limit = loop is not None and handing_over is not None and handing_over >= _FED * loop
    if handing_over is not None and handing_over <= _AS_FAST * warm.samples_per_s and not at_limit:
        return HANDING_OVER, HAND_OVER
    dearest = max(facts.stages, key=lambda cost: cost.cpu_s_per_1000_samples, default=None)
    stage = None if dearest is None else dearest.stages[-1 if len(dearest.stages) > 2 else 0]
    used = warm.cores_used
    if used is None:
        return UNKNOWN, stage
    beside = reached * (used / warm.samples_per_s + facts.step_s)
    if 100 * max(used, beside) >= CORES_BUSY_PCT * facts.usable_cores:
        return CORES, stage
    busy = max(1, facts.workers)
    if used >= WORKERS_BUSY_FRAC * busy:
        return WORKERS, stage
    return WAITS, _slow_stage(facts, warm.samples_per_s)


def _slow_stage(facts: Facts, rate: float) -> str | None:
    """The first stage, from the end on, with which the loader is about as slow as with all."""
    for cost in reversed(facts.stages):
        if cost.samples_per_s <= _AS_FAST * rate:
            return cost.stages[0]
    return None


def _sentence(facts: Facts, bound: str, stage: str | None) -> str:
    what = "loading" if stage is None else next(
        (name_of(cost.stages) for cost in facts.stages if stage in cost.stages), WORDS.get(stage, stage)
    )  # fmt: skip
    reached, demand = facts.rate(WITH_ACCELERATOR), facts.demand
    share = "" if reached is None or not demand else f" ({format_share(min(1.0, reached / demand))} of its rate)"
    workers = "the training process is" if not facts.workers else (
        "the loader worker is" if facts.workers == 1 else f"all {facts.workers} workers are"
    )  # fmt: skip
    return {
        ACCELERATOR_BOUND: f"The accelerator sets the pace: the loader keeps it fed{share}.",
        TRANSFER_BOUND: f"The accelerator sets the pace{share}, slowed down by copying each batch to it.",
        STORAGE_BOUND: f"Storage sets the pace{share}: files are read more slowly than they are used up.",
        CORES: f"The cores set the pace{share}: all {facts.usable_cores:g} usable ones are busy, mostly with {what}.",
        WORKERS: f"The number of workers sets the pace{share}: {workers} busy, mostly with {what}, and cores are free.",
        HANDING_OVER: f"Handing batches over to the training loop sets the pace{share}: without any other work the "
                      "loader is hardly faster.",
        WAITS: f"Waiting sets the pace{share}: cores are free and workers are not busy, but {what} takes its time.",
        UNEVEN: f"Batches come unevenly{share}: in the mean the loader is fast enough, but the accelerator runs out of "
                "them now and then.",
        UNKNOWN: "What sets the pace is not known: too little could be measured.",
    }[bound]  # fmt: skip


def _evidence(facts: Facts) -> tuple[str, ...]:
    lines = []
    demand, warm, cold = facts.demand, facts.part(FETCH), facts.part(COLD)

    def flow(rate: float) -> str:
        return f"{format_rate(rate, ' images/s')}" + (
            f" = {rate * facts.mean_bytes / 1e6:,.0f} MB/s of files" if facts.mean_bytes else ""
        )

    if demand is not None:
        lines.append(f"the accelerator takes {flow(demand)}")
    if warm is not None:
        cores = "" if warm.cores_used is None else f", with {warm.cores_used:.1f} of {facts.usable_cores:g} cores"
        if facts.step_s * (demand or 0.0) >= _STEP_CORES:
            cores += f"; the training step takes {facts.step_s * (demand or 0.0):.1f} more at the accelerator's rate"
        lines.append(f"the loader alone, files in memory, delivers {format_rate(warm.samples_per_s)}{cores}")
    if cold is not None:
        lines.append(f"the loader alone, files from storage, delivers {format_rate(cold.samples_per_s)}")
    storage = facts.rate(STORAGE)
    if storage is not None:
        readers = "one reader" if facts.workers < 2 else f"{facts.workers} readers"
        lines.append(f"storage delivers {flow(storage)} to {readers}")
    return tuple(lines)


def _remedies(facts: Facts, bound: str) -> tuple[Remedy, ...]:
    demand, warm = facts.demand, facts.part(FETCH)
    now = facts.rate(WITH_ACCELERATOR)
    if demand is None or warm is None or now is None or bound in (ACCELERATOR_BOUND, TRANSFER_BOUND, UNKNOWN):
        return ()
    found = [*_settings(facts, bound, demand, warm), *_measured(facts), *_hardware(facts, bound, demand, warm)]
    return tuple(remedy for remedy in found if remedy.samples_per_s > 1.02 * now)


def _settings(facts: Facts, bound: str, demand: float, warm: Part) -> list[Remedy]:
    """Changes that cost nothing but a number in the configuration."""
    c, each = facts.candidate, "" if facts.ranks == 1 else " in each rank"
    if bound == WORKERS and warm.cores_used:
        by_cores = facts.usable_cores / (warm.cores_used / warm.samples_per_s + facts.step_s)
        per_worker = warm.samples_per_s / max(1, facts.workers)
        most = max(1, math.floor(facts.usable_cores / facts.ranks))
        wanted = min(most, max(c.num_workers + 1, math.ceil(demand / per_worker / facts.ranks)))
        if wanted > c.num_workers:
            rate = min(demand, by_cores, per_worker * wanted * facts.ranks)
            return [
                Remedy(change=f"num_workers {c.num_workers} -> {wanted}{each}", samples_per_s=rate, how="predicted")
            ]
    if bound == STORAGE_BOUND and (facts.rate(STORAGE) or 0) > 1.1 * (facts.rate(COLD) or 0):
        rate = min(demand, warm.samples_per_s, facts.rate(STORAGE) or 0)
        return [Remedy(change=f"more workers than {c.num_workers}{each}, which read while others decode",
                       samples_per_s=rate, how="predicted")]  # fmt: skip
    if bound == UNEVEN:
        depth = 2 * max(1, c.prefetch_depth)
        return [Remedy(change=f"a deeper queue: prefetch_factor {c.prefetch_depth} -> {depth}{each}",
                       samples_per_s=demand, how="predicted")]  # fmt: skip
    return []


def _measured(facts: Facts) -> list[Remedy]:
    """The fastest other candidate of the sweep."""
    others = [
        outcome for outcome in facts.swept
        if outcome.measurement is not None and outcome.role != "ceiling" and outcome.candidate != facts.candidate
    ]  # fmt: skip
    best = max(
        others, key=lambda outcome: outcome.measurement.samples_per_s if outcome.measurement else 0.0, default=None
    )
    if best is None or best.measurement is None:
        return []
    return [Remedy(change=describe(best.candidate), samples_per_s=best.measurement.samples_per_s, how="measured")]


def _hardware(facts: Facts, bound: str, demand: float, warm: Part) -> list[Remedy]:
    """Changes that take other hardware."""
    if bound == STORAGE_BOUND:
        storage, size = facts.rate(STORAGE), facts.mean_bytes
        rate = min(demand, warm.samples_per_s)
        found = [Remedy(change="files in memory, where all of them fit", samples_per_s=rate, how="measured")]
        if storage and size:
            flows = f"{rate * size / 1e6:,.0f} MB/s in place of {storage * size / 1e6:,.0f}"
            found.append(Remedy(change=f"storage that delivers {flows}", samples_per_s=rate, how="predicted"))
        return found
    if bound in (CORES, WORKERS) and warm.cores_used:
        needed = math.ceil(demand * (warm.cores_used / warm.samples_per_s + facts.step_s) - 0.05)
        if needed > facts.usable_cores:
            return [Remedy(change=f"{needed} cores in place of {facts.usable_cores:g}, and as many workers",
                           samples_per_s=demand, how="predicted")]  # fmt: skip
    return []
