"""What sets a loader's pace, and the figures that this rests on. Pure.

The demand is the rate at which the accelerator takes batches that are ready; the supply is the rate of the loader
alone. Where the supply is smaller, what is short is found from the parts: storage, cores, workers, handing over, or
something that the workers wait for.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipetune.augmentation.recipes import DEVICE
from pipetune.diagnosis.causes import CORES_BUSY_PCT, WORKERS_BUSY_FRAC
from pipetune.explaining.facts import Facts, name_of
from pipetune.records.explanation import (
    ACCELERATOR,
    COLD,
    DECODE,
    FETCH,
    HAND_OVER,
    LOOP,
    STORAGE,
    TRANSFER,
    TRANSFORM,
    WITH_ACCELERATOR,
    Part,
    StageCost,
)
from pipetune.units import format_rate, format_share

#: What can set the pace: the accelerator itself; copies to it; storage; all usable cores; too few workers; handing over
#: from the workers to the training loop; something that workers wait for without using a core; workers that start anew
#: with each epoch; batches that come unevenly, though fast enough in the mean; or it is not known.
ACCELERATOR_BOUND, TRANSFER_BOUND, STORAGE_BOUND, CORES, WORKERS, HANDING_OVER, WAITS, RESTARTS, UNEVEN, UNKNOWN = (
    LIMITS
) = (
    "accelerator", "transfer", "storage", "cores", "workers", "hand_over", "waits", "worker_start", "uneven", "unknown",
)  # fmt: skip
#: From this share of the accelerator's rate on, nothing is worth to be lifted; from the second on, where the interval
#: reaches all of it.
FED, NEARLY_FED = 0.97, 0.93
#: Files from storage slow a loader down where its rate is below this share of the one from memory.
_SLOWED = 0.9
#: A stage sets the pace where the loader without the stages before it is not faster than this factor.
_AS_FAST = 1.15
#: From this many cores on, what the training step takes is stated.
_STEP_CORES = 0.05
#: Copies cost the accelerator this share of its rate before they are named.
_COPIES = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What sets the pace."""

    bound_by: str
    """One of :data:`LIMITS`."""
    cost: StageCost | None = None
    """Of the stages that take most of what is short; ``None``: none do."""

    @property
    def stage(self) -> str | None:
        """The stage; ``None``: there is none, or it is one of several that were not measured apart."""
        stages = () if self.cost is None else self.cost.stages
        if stages == (DECODE, TRANSFORM):
            return DECODE  # of a decoder that does both, it is what takes the time
        return stages[0] if len(stages) == 1 else None


def judge(facts: Facts) -> Verdict:
    """The verdict."""
    demand, reached, warm = facts.demand, facts.part(WITH_ACCELERATOR), facts.part(FETCH)
    if demand is None or reached is None:
        return Verdict(bound_by=UNKNOWN)
    if _is_fed(demand, reached):
        copies, alone = facts.rate(TRANSFER), facts.rate(ACCELERATOR)
        slow_copies = copies is not None and alone is not None and copies < (1 - _COPIES) * alone
        return Verdict(bound_by=TRANSFER_BOUND if slow_copies else ACCELERATOR_BOUND)
    if warm is None:
        return Verdict(bound_by=UNKNOWN)
    if facts.reads_storage:
        from_storage = _about_storage(facts, demand, reached, warm)
        if from_storage is not None:
            return from_storage
    if (facts.supply or 0.0) * FED >= demand:
        restarts = facts.candidate.num_workers > 0 and not facts.candidate.persistent_workers
        return Verdict(bound_by=RESTARTS if restarts else UNEVEN)
    return _about_processors(facts, warm, reached)


def _is_fed(demand: float, reached: Part) -> bool:
    rate = reached.samples_per_s
    return rate >= FED * demand or (rate >= NEARLY_FED * demand and reached.rate_ci95[1] >= demand)


def _about_storage(facts: Facts, demand: float, reached: Part, warm: Part) -> Verdict | None:
    """Whether storage is to blame; ``None``: it is fast enough."""
    cold = facts.rate(COLD)
    if cold is None and facts.cold:
        return Verdict(bound_by=UNKNOWN)
    # Of a loader of the user's own, files cannot be dropped: beside the accelerator it reads what it reads.
    rate = reached.samples_per_s if cold is None else cold
    supply = warm.samples_per_s if cold is not None else (facts.supply or warm.samples_per_s)
    if rate < _SLOWED * supply and rate < demand:
        return Verdict(bound_by=STORAGE_BOUND, cost=next((one for one in facts.stages if FETCH in one.stages), None))
    return None


def _about_processors(facts: Facts, warm: Part, reached: Part) -> Verdict:
    handing_over, loop = facts.rate(HAND_OVER), facts.rate(LOOP)
    # As fast as the training loop can ask for batches is not slow.
    at_limit = loop is not None and handing_over is not None and handing_over >= FED * loop
    if handing_over is not None and handing_over <= _AS_FAST * warm.samples_per_s and not at_limit:
        return Verdict(bound_by=HANDING_OVER, cost=next(one for one in facts.stages if HAND_OVER in one.stages))
    dearest = max(facts.stages, key=lambda one: one.cpu_s_per_1000_samples, default=None)
    used = warm.cores_used
    if used is None:
        return Verdict(bound_by=UNKNOWN)
    beside = reached.samples_per_s * (facts.load_s + facts.step_s)
    if 100 * max(used, beside) >= CORES_BUSY_PCT * facts.usable_cores:
        return Verdict(bound_by=CORES, cost=dearest)
    if used >= WORKERS_BUSY_FRAC * max(facts.ranks, facts.workers):
        return Verdict(bound_by=WORKERS, cost=dearest)
    slow = [one for one in facts.stages if one.samples_per_s <= _AS_FAST * warm.samples_per_s]
    return Verdict(bound_by=WAITS, cost=slow[-1] if slow else None)


def sentence_of(facts: Facts, verdict: Verdict) -> str:
    """The verdict in words."""
    what = "loading" if verdict.cost is None else name_of(verdict.cost.stages, facts.stages)
    reached, demand = facts.rate(WITH_ACCELERATOR), facts.demand
    share = "" if reached is None or not demand else f" ({format_share(min(1.0, reached / demand))} of its rate)"
    of_it = share.replace("its rate", "the accelerator's rate")
    return {
        ACCELERATOR_BOUND: f"The accelerator sets the pace: the loader keeps it fed{share}.",
        TRANSFER_BOUND: f"The accelerator sets the pace{share}, slowed down by copying each batch to it.",
        STORAGE_BOUND: f"Storage sets the pace{of_it}: files come more slowly than the loader could use them.",
        CORES: f"The cores set the pace{of_it}: all {facts.usable_cores:g} usable ones are busy, mostly with {what}.",
        WORKERS: f"The number of workers sets the pace{of_it}: {_who(facts)} busy, mostly with {what}, and cores are "
                 "free.",
        HANDING_OVER: f"Handing batches over to the training loop sets the pace{of_it}: without any other work the "
                      "loader is hardly faster.",
        WAITS: f"Waiting sets the pace{of_it}: cores are free and workers are not busy, but {what} takes its time.",
        RESTARTS: f"Workers that start anew with each epoch set the pace{of_it}: once they run, the loader is fast "
                  "enough.",
        UNEVEN: f"Batches come unevenly{of_it}: in the mean the loader is fast enough, but the accelerator runs out of "
                "them now and then.",
        UNKNOWN: "What sets the pace is not known: too little could be measured.",
    }[verdict.bound_by]  # fmt: skip


def _who(facts: Facts) -> str:
    if not facts.candidate.num_workers:
        return "the training process is" if facts.ranks == 1 else "each training process is"
    return "the loader worker is" if facts.workers == 1 else f"all {facts.workers} workers are"


def evidence_of(facts: Facts) -> tuple[str, ...]:
    """The demand beside the supply."""
    lines = []
    demand, warm, cold = facts.demand, facts.part(FETCH), facts.part(COLD)

    def flow(rate: float) -> str:
        files = f" = {rate * facts.mean_bytes / 1e6:,.0f} MB/s of files" if facts.mean_bytes else ""
        return f"{format_rate(rate, ' images/s')}{files}"

    if demand is not None:
        lines.append(f"the accelerator takes {flow(demand)}")
    if facts.augmenting_s is not None:
        takes = "takes" if facts.candidate.transforms_on == DEVICE else "would take"
        lines.append(f"augmenting on the device {takes} {1e3 * facts.ranks * facts.augmenting_s:.2f} ms an image")
    if warm is not None:
        cores = "" if warm.cores_used is None else f", with {warm.cores_used:.1f} of {facts.usable_cores:g} cores"
        if facts.step_s * (demand or 0.0) >= _STEP_CORES:
            cores += f"; the training step takes {facts.step_s * (demand or 0.0):.1f} more at the accelerator's rate"
        lines.append(f"the loader alone, files in memory, delivers {format_rate(warm.samples_per_s)}{cores}")
    if cold is not None:
        lines.append(f"the loader alone, files from storage, delivers {format_rate(cold.samples_per_s)}")
    storage = facts.rate(STORAGE)
    if storage is not None:
        lines.append(f"storage delivers {flow(storage)} to {max(facts.ranks, facts.workers)} reader"
                     f"{'s' * (max(facts.ranks, facts.workers) > 1)}")  # fmt: skip
    return tuple(lines)
