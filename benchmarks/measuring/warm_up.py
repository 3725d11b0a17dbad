"""Whether the present warm-up is as good as the longer one of before: both rules on the same recorded steps.

Before, a loader was steady when two windows of 0.4 s differed by less than 5 %. Now a fast loader's windows end after
:data:`pipetune.measure.phases.WARMUP_WINDOW_BATCHES` batches, and two windows may differ by what chance explains. What
follows for a second and a half is what each rule would have timed; all steps of the same run after the longer warm-up
are what it should have been.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

from benchmarks import bench
from pipetune.measure.harness import measure
from pipetune.measure.phases import PhasePlan, PhaseProgress, plan_phases, run_phases
from pipetune.records.sweep import Candidate, StepTime

#: Loaders of hundreds of batches per second on small images, and the usual ones. With the edge of their images (px).
CANDIDATES = (
    (32, Candidate(
        backend="jpeg-roi", num_workers=2, prefetch_depth=2, batch_size=8, loader="threads", transfer="uint8"
    )),
    (32, Candidate(backend="opencv", num_workers=2, prefetch_depth=2, batch_size=8)),
    (224, Candidate(backend="jpeg-roi", num_workers=1, prefetch_depth=2, batch_size=64, loader="threads")),
    (224, Candidate(backend="opencv", num_workers=2, prefetch_depth=2, batch_size=64)),
    (224, Candidate(backend="pillow", num_workers=0, prefetch_depth=0, batch_size=64)),
)  # fmt: skip
#: Length of the recorded timed phase, of the applied one, and longest warm-up (s): the first has room for both.
SECONDS, TIMED_S, LIMIT_S = 5.0, 1.5, 3.0
#: Difference of the rates that both rules come to, in the median over all runs, by which what is timed may be further
#: off than with the longer rule, and the share of the warm-up's time that fast loaders have to save.
MAX_BIAS, FURTHER_OFF, LEAST_SAVED = 0.01, 0.01, 0.3
FAST_SIZE = 32
RULES = ("before", "now")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What a rule makes of a run."""

    warm_up_s: float
    rate: float
    """Samples/s of what follows."""


def compare(folder: Path, repeats: int) -> dict[str, Any]:
    """Measure each candidate so often; what both rules make of the steps."""
    folder.mkdir()
    rows, numbers, every = [], {}, []
    for size, candidate in CANDIDATES:
        setting = bench.loader_setting(folder, "synthetic:caltech256?n=600", seconds=SECONDS, image_size=size)
        runs = [both(candidate, recorded(candidate, setting)) for _ in range(repeats)]
        every += runs
        found = numbers[f"{candidate.key}, {size} px"] = described(runs, candidate.batch_size)
        rows.append([
            f"{candidate.key}, {size} px", str(repeats), f"{found['batches_per_s']:.0f}/s",
            *(f"{s:.2f} s" for s in found["warm_up_s"]), f"{found['ratio']:.3f}",
            *(f"{100 * off:.1f} %" for off in found["off"]),
        ])  # fmt: skip
    headings = ["runs", "batches", *(f"warm-up {rule}" for rule in RULES), "ratio of rates"]
    print("\n" + bench.table(["warm-up", *headings, *(f"off {rule}" for rule in RULES)], rows))
    together = described(every, 1)
    fast = [one["warm_up_s"] for key, one in numbers.items() if key.endswith(f" {FAST_SIZE} px")]
    saved = 1 - sum(now for _, now in fast) / sum(before for before, _ in fast)
    holds = (
        abs(together["ratio"] - 1) <= MAX_BIAS and together["off"][1] <= together["off"][0] + FURTHER_OFF
        and saved >= LEAST_SAVED
    )  # fmt: skip
    print(
        f"off: median difference of what is timed from all steps after the longer warm-up; of all runs "
        f"{100 * together['off'][0]:.1f} % before and {100 * together['off'][1]:.1f} % now, ratio "
        f"{together['ratio']:.3f}; fast loaders save {100 * saved:.0f} % of the warm-up: {bench.yes(holds)}"
    )
    return {"candidates": numbers, "all": together, "fast_loaders_save": saved, "holds": holds}


def recorded(candidate: Candidate, setting: Any) -> list[StepTime]:
    """All steps of one run, the warm-up included."""
    outcome, recording = measure(candidate, "candidate", setting)
    if outcome.measurement is None:
        raise SystemExit(f"{candidate.key} failed: {outcome.failure}")
    return [*recording.warmup, *recording.timed]


def both(candidate: Candidate, steps: Sequence[StepTime]) -> tuple[Rule, Rule, float]:
    """What the rule of before and the present one make of the same steps, and the rate of the later ones."""
    plan = plan_phases(candidate.num_workers, candidate.prefetch_depth, TIMED_S, LIMIT_S)
    before = applied(replace(plan, window_batches=math.inf, by_chance=0.0), steps)
    now = applied(plan, steps)
    began_ns = steps[0].t_end_ns
    later = [step for step in steps if (step.t_end_ns - began_ns) / 1e9 > max(before.warm_up_s, now.warm_up_s)]
    return before, now, rate_of(later)


def applied(plan: PhasePlan, steps: Sequence[StepTime]) -> Rule:
    """What a rule makes of them."""
    warm_up: list[StepTime] = []
    timed: list[StepTime] = []
    for phase, step in run_phases(iter(steps), plan, PhaseProgress()):
        (warm_up if phase == "warmup" else timed).append(step)
    return Rule(warm_up_s=(warm_up[-1].t_end_ns - steps[0].t_end_ns) / 1e9, rate=rate_of([warm_up[-1], *timed]))


def rate_of(steps: Sequence[StepTime]) -> float:
    """Samples/s of all steps but the first."""
    return sum(step.samples for step in steps[1:]) / ((steps[-1].t_end_ns - steps[0].t_end_ns) / 1e9)


def described(runs: Sequence[tuple[Rule, Rule, float]], batch_size: int) -> dict[str, Any]:
    """What runs amount to."""
    rules = [(before, now) for before, now, _ in runs]
    return {
        "batches_per_s": median(later for _, _, later in runs) / batch_size,
        "warm_up_s": [fmean(pair[n].warm_up_s for pair in rules) for n in (0, 1)],
        "ratio": median(now.rate / before.rate for before, now, _ in runs),
        "off": [
            median(abs(pair[n].rate / later - 1) for pair, (_, _, later) in zip(rules, runs, strict=True))
            for n in (0, 1)
        ],
    }  # fmt: skip
