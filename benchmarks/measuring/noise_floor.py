"""How far can one measurement be trusted? The same candidates, again and again, in fresh processes.

Promise: the 95 % interval that pipetune states with a rate covers the truth in about 95 % of repeats.

The truth is not known; the mean of all *other* repeats of the candidate stands in for it, which is harder on the
interval than the truth would be. The promise holds when the coverage is not below what chance allows (one-sided
binomial test at 1 %), and when the intervals are not too wide either, because a wide enough interval covers anything:
on average at most twice as wide as the spread that was seen calls for (1.96 standard deviations), or 5 %, whichever is
more.

The order of candidates is shuffled anew in every round, so a slow drift of the machine meets all of them alike.
``--quick`` takes about 5 minutes, the full run about 20.
"""

from __future__ import annotations

import math
import random
import sys
import tempfile
from argparse import Namespace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import bench
from pipetune.measure.harness import measure
from pipetune.records.sweep import Candidate, Measurement
from pipetune.stats.noise import run_noise

#: The default, a loader with processes and one with threads in another library.
CANDIDATES = (
    Candidate(backend="pillow", num_workers=0, prefetch_depth=0, batch_size=64),
    Candidate(backend="opencv", num_workers=2, prefetch_depth=2, batch_size=64),
    Candidate(backend="torchvision", num_workers=1, prefetch_depth=2, batch_size=64),
    Candidate(backend="dali", num_workers=2, prefetch_depth=2, batch_size=64),
)
#: An interval may be wider than the spread calls for by this factor, and as wide as this share in any case.
MAX_WIDTH_FACTOR, WIDTH_ALWAYS_FINE = 2.0, 0.05


def main(options: Namespace) -> bench.Result:
    repeats, candidates = (10, CANDIDATES[:2]) if options.quick else (20, CANDIDATES)
    results: dict[str, list[Measurement]] = {}
    shuffler = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        setting = bench.loader_setting(Path(folder), "synthetic:caltech256?n=600", seconds=4.0)
        for turn in range(repeats):
            for candidate in shuffler.sample(candidates, len(candidates)):
                seen = [m for earlier in results.values() for m in earlier]
                outcome, _ = measure(candidate, "candidate", setting, run_noise=run_noise(seen))
                found = outcome.measurement
                if found is None:
                    raise SystemExit(f"{candidate.key} failed: {outcome.failure}")
                results.setdefault(candidate.key, []).append(found)
                print(f"{turn + 1:2}/{repeats} {candidate.key:22} {found.samples_per_s:8.1f}/s", flush=True)
    return judge(results)


def judge(results: dict[str, list[Measurement]]) -> bench.Result:
    """Coverage and width of the intervals, per candidate and in all."""
    numbers = {key: describe(measurements) for key, measurements in results.items()}
    rows = [
        [
            key, str(len(found["rates_samples_per_s"])), f"{fmean(found['rates_samples_per_s']):.0f}/s",
            f"{100 * found['relative_stdev']:.1f} %", f"{100 * found['machine_speed_relative_stdev']:.1f} %",
            f"±{100 * found['mean_half_interval']:.1f} %", f"{found['covered']}/{len(found['rates_samples_per_s'])}",
        ]
        for key, found in numbers.items()
    ]  # fmt: skip
    headings = ["candidate", "runs", "mean rate", "spread (sd)", "machine speed sd", "mean interval", "covered"]
    print("\n" + bench.table(headings, rows))
    covered = sum(found["covered"] for found in numbers.values())
    trials = sum(len(measurements) for measurements in results.values())
    chance = binomial_tail(covered, trials, 0.95)
    noise = run_noise(m for measurements in results.values() for m in measurements)
    narrow = all(
        found["mean_half_interval"] <= max(WIDTH_ALWAYS_FINE, MAX_WIDTH_FACTOR * 1.96 * found["relative_stdev"])
        for found in numbers.values()
    )
    share = covered / trials
    print(f"\ncoverage {covered}/{trials} = {100 * share:.0f} % (stated: 95 %; chance of so few: {chance:.3f})")
    print(f"intervals narrow enough: {bench.yes(narrow)}; run noise as estimated at the end: {noise:.3f}")
    return bench.Result(chance >= 0.01 and narrow, {
        "coverage": share, "chance": chance, "run_noise": noise, "honest_width": narrow,
        "candidates": numbers,
    })  # fmt: skip


def describe(measurements: list[Measurement]) -> dict[str, Any]:
    """Of one candidate: the spread of its rates, and how many of its intervals cover the mean of the other repeats."""
    rates = [m.samples_per_s for m in measurements]
    others = [fmean(rates[:number] + rates[number + 1 :]) for number in range(len(rates))]
    speeds = [(m.machine_speed_before + m.machine_speed_after) / 2 for m in measurements]
    return {
        "rates_samples_per_s": rates, "ci95": [m.ci95 for m in measurements],
        "relative_stdev": stdev(rates) / fmean(rates),
        "machine_speed_before": [m.machine_speed_before for m in measurements],
        "machine_speed_after": [m.machine_speed_after for m in measurements],
        "steady": [m.steady for m in measurements],
        "machine_speed_relative_stdev": stdev(speeds) / fmean(speeds),
        "mean_half_interval": fmean((m.ci95[1] - m.ci95[0]) / 2 / m.samples_per_s for m in measurements),
        "covered": sum(m.ci95[0] <= truth <= m.ci95[1] for m, truth in zip(measurements, others, strict=True)),
    }  # fmt: skip


def binomial_tail(successes: int, trials: int, p: float) -> float:
    """Probability of at most so many successes."""
    return sum(math.comb(trials, k) * p**k * (1 - p) ** (trials - k) for k in range(successes + 1))


if __name__ == "__main__":
    bench.run(main, __file__, __doc__)
