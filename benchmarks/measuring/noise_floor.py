"""How far can a stated interval be trusted? The same candidates, again and again, really and on paper.

Promise: the 95 % interval that pipetune states with a rate covers the truth in about 95 % of repeats.

Really measured, in fresh processes:

1. Candidates that a loader limits, in full length. Three successive repeats of one are pooled as blocks are, too.
2. Candidates that may end early, with a question at their own mean: whether they are above or below it, which nobody
   can say. That is the hardest case for an interval, because a run that is far off by chance ends at once.
3. A device that sets the pace, whose processes scatter by 1.5 and by 3 %: the stand-in CUDA runtime of
   ``tests/fake_cuda`` with torch's real CUDA code. Left out with ``--quick``, and where it cannot be built.

The truth is not known; the mean of all *other* repeats of the candidate stands in for it, which is harder on the
interval than the truth would be. An arm holds when its coverage is not below what chance allows (one-sided binomial
test at 1 %), and when the intervals are not too wide either, because a wide enough interval covers anything: on average
at most twice as wide as the spread that was seen calls for (1.96 standard deviations), or 10 %, whichever is more: the
first intervals, when nothing is known of the machine yet, are ±17.5 %.

On paper (``paper_sweeps.py``), where the truth is known, at least 92 % of at least 200 intervals have to cover it,
first looks and pooled blocks each: loaders on quiet and shared machines, candidates that may end early, devices with
1.5 and 3 % scatter, and a loader that slows a device that never waits. On a quiet machine (3 %) what blocks state must
be known to 10 % in the mean.

The warm-up of fast loaders is shorter than that of others: what both rules make of the same recorded steps is compared
(``warm_up.py``): the same rate but for 1 %, after at most 70 % of the time.

The order of candidates is shuffled anew in every round, so a slow drift of the machine meets all of them alike.
``--quick`` takes about 11 minutes, the full run about 45.
"""

from __future__ import annotations

import math
import random
import sys
import tempfile
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import bench
from benchmarks.measuring import paced_device, warm_up
from benchmarks.measuring.paper_sweeps import Stated, World, sweep
from pipetune.measure.harness import Conditions, measure
from pipetune.measure.phases import Question
from pipetune.records.sweep import Candidate, Measurement, Outcome
from pipetune.search.pooled import merged, repetitions
from pipetune.stats.noise import device_noise, run_noise

#: The default, a loader with processes and one with threads in another library.
CANDIDATES = (
    Candidate(backend="pillow", num_workers=0, prefetch_depth=0, batch_size=64),
    Candidate(backend="opencv", num_workers=2, prefetch_depth=2, batch_size=64),
    Candidate(backend="torchvision", num_workers=1, prefetch_depth=2, batch_size=64),
    Candidate(backend="dali", num_workers=2, prefetch_depth=2, batch_size=64),
)
#: How many of them are measured with a question, too.
ASKED = 2
#: An interval may be wider than the spread calls for by this factor, and as wide as this share in any case.
MAX_WIDTH_FACTOR, WIDTH_ALWAYS_FINE = 2.0, 0.10
#: Repeats that are pooled; sweeps of an arm on paper; the coverage that it has to reach; the mean half-width of what
#: blocks state on a quiet machine; the spread of repeats up to which the real one counts as quiet.
BLOCKS, SWEEPS, COVERAGE, BLOCKS_HALF, QUIET = 3, 200, 0.92, 0.10, 0.05

QUIET_WORLD = World(name="loader, quiet machine (3 %)", run_sd=0.03)
WORLDS = (
    QUIET_WORLD,
    World(name="loader, shared machine (8 %)", run_sd=0.08),
    World(name="ends early, steps vary by 30 %", run_sd=0.03, step_variation=0.3, early=True),
    World(name="the same, noise known", run_sd=0.03, step_variation=0.3, early=True, known=True),
    World(name="the same, steps vary by 50 %", run_sd=0.03, step_variation=0.5, early=True, known=True),
    World(name="device sets the pace (1.5 %)", kind="cuda", device_sd=0.015, idle_frac=0.0, step_variation=0.01),
    World(name="device sets the pace (3 %)", kind="cuda", device_sd=0.03, idle_frac=0.0, step_variation=0.01),
    World(
        name="loader slows the device by 8 %", kind="cuda", device_sd=0.01, run_sd=0.03, slowed=0.08, idle_frac=0.0,
        step_variation=0.02,
    ),
)  # fmt: skip

#: Arm of real measurements -> candidate -> its repeats.
Repeats = dict[str, dict[str, list[Measurement]]]


def main(options: Namespace) -> bench.Result:
    paper = {world.name: on_paper(world, SWEEPS // 2 if options.quick else SWEEPS) for world in WORLDS}
    print(bench.table(
        ["on paper", "looks", "cover", "mean interval", "blocks", "cover", "mean interval", "holds"],
        [[name, *(text for stage in ("looks", "blocks") for text in (
            str(found[stage]["intervals"]), f"{100 * found[stage]['coverage']:.1f} %",
            f"±{100 * found[stage]['mean_half_interval']:.1f} %",
        )), bench.yes(found["holds"])] for name, found in paper.items()],
    ))  # fmt: skip
    half = paper[QUIET_WORLD.name]["blocks"]["mean_half_interval"]
    print(f"on a quiet machine what blocks state is known to ±{100 * half:.1f} % (at most {100 * BLOCKS_HALF:.0f} %)\n")
    repeats, candidates = (8, CANDIDATES[:2]) if options.quick else (20, CANDIDATES)
    with tempfile.TemporaryDirectory() as folder:
        setting = bench.loader_setting(Path(folder), "synthetic:caltech256?n=600", seconds=4.0)
        arms = loaders(setting, candidates, repeats)
        reason = "left out with --quick" if options.quick else paced_device.why_not()
        if reason is None:
            for scatter in paced_device.SCATTERS:
                arms[f"device, {100 * scatter:g} %"] = paced_device.measure_all(Path(folder), scatter, repeats)
        shorter = warm_up.compare(Path(folder, "warm-up"), repeats)
    device = "torch's CUDA code on the stand-in CUDA runtime" if reason is None else f"on paper only ({reason})"
    print(f"\na device that sets the pace was measured: {device}")
    judged = judge(arms)
    holds = all(found["holds"] for found in paper.values()) and half <= BLOCKS_HALF and judged["holds"]
    return bench.Result(
        holds and shorter["holds"], {**judged, "paper": paper, "device": device, "warm_up": shorter}
    )  # fmt: skip


def on_paper(world: World, sweeps: int) -> dict[str, Any]:
    """Coverage and width of what sweeps state in one world: first looks, and what is pooled over blocks."""
    draw = random.Random(world.name)
    stated = [one for _ in range(sweeps) for one in sweep(world, draw)]
    looks = [one for one in stated if one.stage == "look"]
    found: dict[str, Any] = {"looks": described(looks), "blocks": described([s for s in stated if s.stage != "look"])}
    stages = sorted({one.stage for one in stated if one.stage != "look"})
    found["by_blocks"] = {stage: described([one for one in stated if one.stage == stage]) for stage in stages}
    found["ended_early"] = fmean(one.ended_early for one in looks)
    found["mean_timed_s"] = fmean(one.timed_s for one in looks)
    return {**found, "holds": min(found["looks"]["coverage"], found["blocks"]["coverage"]) >= COVERAGE}


def described(stated: Sequence[Stated]) -> dict[str, Any]:
    return {
        "intervals": len(stated), "coverage": fmean(one.covered for one in stated),
        "mean_half_interval": fmean(one.half for one in stated),
    }  # fmt: skip


def loaders(setting: Conditions, candidates: Sequence[Candidate], repeats: int) -> Repeats:
    """Loaders in full length, and the first of them with a question at their own mean, in one shuffled order."""
    arms: Repeats = {"full length": {}, "ends early": {}}
    outcomes: list[Outcome] = []
    shuffler = random.Random(1)
    jobs = [("full length", candidate) for candidate in candidates]
    jobs += [("ends early", candidate) for candidate in candidates[:ASKED]]
    for turn in range(repeats):
        for arm, candidate in shuffler.sample(jobs, len(jobs)):
            noise = run_noise((outcome.measurement for outcome in outcomes), repetitions(outcomes))
            own = [m.samples_per_s for results in arms.values() for m in results.get(candidate.key, [])]
            question = None
            if arm == "ends early":
                # The first has nothing to be compared with; it ends when more time would not help.
                question = Question(levels=(fmean(own),) if own else (), run_noise=noise, device_noise=EMULATED)
            outcome, _ = measure(candidate, "candidate", setting, run_noise=noise, question=question)
            found = outcome.measurement
            if found is None:
                raise SystemExit(f"{candidate.key} failed: {outcome.failure}")
            outcomes.append(outcome)
            arms[arm].setdefault(candidate.key, []).append(found)
            print(f"{turn + 1:2}/{repeats} {arm:12} {candidate.key:22} {found.samples_per_s:8.1f}/s", flush=True)
    return arms


#: What an emulated device adds.
EMULATED = device_noise([], "emulated")


def judge(arms: Repeats) -> dict[str, Any]:
    """Coverage and width of the intervals, per candidate and in all."""
    numbers: dict[str, Any] = {}
    holds = True
    for arm, results in arms.items():
        # The truth is the same whether a candidate may end early or not.
        everything = {key: [m for one in arms.values() for m in one.get(key, [])] for key in results}
        found = {key: describe(runs, everything[key]) for key, runs in results.items()}
        numbers[arm] = {**total(found), "candidates": found}
        holds = holds and numbers[arm]["holds"]
        rows = [
            [
                key, str(len(one["rates_samples_per_s"])), f"{fmean(one['rates_samples_per_s']):.0f}/s",
                f"{100 * one['relative_stdev']:.1f} %", f"{100 * one['machine_speed_relative_stdev']:.1f} %",
                f"±{100 * one['mean_half_interval']:.1f} %", f"{one['covered']}/{len(one['rates_samples_per_s'])}",
                f"±{100 * one['blocks_mean_half_interval']:.1f} %", f"{one['blocks_covered']}/{one['blocks']}",
            ]
            for key, one in found.items()
        ]  # fmt: skip
        headings = ["runs", "mean rate", "spread (sd)", "machine speed sd", "mean interval", "covered"]
        print("\n" + bench.table([arm, *headings, "in blocks", "covered"], rows))
        share, chance = numbers[arm]["coverage"], numbers[arm]["chance"]
        print(
            f"coverage {100 * share:.0f} % (stated: 95 %; chance of so few: {chance:.3f}); intervals narrow enough: "
            f"{bench.yes(numbers[arm]['honest_width'])}"
        )
    quiet = [
        one["blocks_mean_half_interval"] for one in numbers["full length"]["candidates"].values()
        if one["relative_stdev"] <= QUIET
    ]  # fmt: skip
    if quiet:
        print(f"known from {BLOCKS} blocks, of candidates that scatter by {100 * QUIET:.0f} % at most: "
              f"±{100 * fmean(quiet):.1f} %")  # fmt: skip
    full = numbers["full length"]
    return {
        **{name: full[name] for name in ("coverage", "chance", "honest_width", "candidates")},
        "arms": numbers, "quiet_blocks_mean_half_interval": fmean(quiet) if quiet else None, "holds": holds,
    }  # fmt: skip


def total(found: Mapping[str, Any]) -> dict[str, Any]:
    """Of one arm: coverage, how likely so little is by chance, and whether the intervals are narrow enough."""
    covered = sum(one["covered"] for one in found.values())
    trials = sum(len(one["rates_samples_per_s"]) for one in found.values())
    chance = binomial_tail(covered, trials, 0.95)
    narrow = all(
        one["mean_half_interval"] <= max(WIDTH_ALWAYS_FINE, MAX_WIDTH_FACTOR * 1.96 * one["relative_stdev"])
        for one in found.values()
    )
    return {
        "coverage": covered / trials, "chance": chance, "honest_width": narrow, "holds": chance >= 0.01 and narrow,
    }  # fmt: skip


def describe(runs: Sequence[Measurement], everything: Sequence[Measurement]) -> dict[str, Any]:
    """Of one candidate: the spread of its rates, and how many of its intervals cover the mean of the other repeats."""
    rates = [m.samples_per_s for m in runs]
    speeds = [(m.machine_speed_before + m.machine_speed_after) / 2 for m in runs]
    groups = [runs[start : start + BLOCKS] for start in range(0, len(runs) - BLOCKS + 1, BLOCKS)]
    groups = groups if len(everything) > BLOCKS else []  # the truth is the mean of others
    pooled = [(pool(group), others(everything, group)) for group in groups]
    return {
        "rates_samples_per_s": rates, "ci95": [m.ci95 for m in runs],
        "relative_stdev": stdev(rates) / fmean(rates),
        "machine_speed_before": [m.machine_speed_before for m in runs],
        "machine_speed_after": [m.machine_speed_after for m in runs],
        "steady": [m.steady for m in runs], "ended_early": [m.ended_early for m in runs],
        "machine_speed_relative_stdev": stdev(speeds) / fmean(speeds),
        "mean_half_interval": fmean(half_of(m) for m in runs),
        "covered": sum(m.ci95[0] <= others(everything, [m]) <= m.ci95[1] for m in runs),
        "blocks": len(pooled), "blocks_mean_half_interval": fmean(half_of(m) for m, _ in pooled) if pooled else 0.0,
        "blocks_covered": sum(m.ci95[0] <= truth <= m.ci95[1] for m, truth in pooled),
    }  # fmt: skip


def half_of(m: Measurement) -> float:
    """Half-width of the interval per rate."""
    return (m.ci95[1] - m.ci95[0]) / 2 / m.samples_per_s


def others(everything: Sequence[Measurement], without: Sequence[Measurement]) -> float:
    """Mean rate of all measurements but some."""
    return fmean(m.samples_per_s for m in everything if not any(m is one for one in without))


def pool(runs: Sequence[Measurement]) -> Measurement:
    """Several measurements of one candidate as one, as the search pools those of its blocks."""
    outcomes = [
        Outcome(candidate=CANDIDATES[0], role="candidate", attempt=1, started_unix_s=0, wall_s=0, measurement=m)
        for m in runs
    ]
    found = merged(outcomes).measurement
    assert found is not None
    return found


def binomial_tail(successes: int, trials: int, p: float) -> float:
    """Probability of at most so many successes."""
    return sum(math.comb(trials, k) * p**k * (1 - p) ** (trials - k) for k in range(successes + 1))


if __name__ == "__main__":
    bench.run(main, __file__, __doc__)
