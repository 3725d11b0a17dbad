"""How far can one measurement be trusted? The same candidates, again and again, in fresh processes.

Promise: the 95 % interval that pipetune states with a rate covers the truth in about 95 % of repeats. The truth is not
known; the mean of all *other* repeats of the candidate stands in for it, which is harder on the interval than the truth
would be. The promise holds when the coverage is not below what chance allows (one-sided binomial test at 1 %), and when
the intervals are honest in width, too, because a wide enough interval covers anything: on average at most twice as wide
as the spread that was seen calls for (1.96 standard deviations), or 5 %, whichever is more.

The order of candidates is shuffled anew in every round, so a slow drift of the machine meets all of them alike.
"""

from __future__ import annotations

import math
import random
import sys
import tempfile
from pathlib import Path
from statistics import fmean, stdev

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import bench
from pipetune.measure.harness import measure
from pipetune.records.sweep import Candidate, Measurement
from pipetune.stats.noise import run_noise

#: (backend, workers): the default, a process loader and a thread pool in another library.
CANDIDATES = (("pillow", 0), ("opencv", 2), ("torchvision", 1), ("dali", 2))
WIDEST_FACTOR, WIDTH_ALWAYS_FINE = 2.0, 0.05


def binomial_tail(successes: int, trials: int, p: float) -> float:
    """Probability of at most so many successes."""
    return sum(math.comb(trials, k) * p**k * (1 - p) ** (trials - k) for k in range(successes + 1))


def main() -> int:
    options = bench.arguments(__doc__)
    repeats, candidates = (10, CANDIDATES[:2]) if options.quick else (20, CANDIDATES)
    results: dict[str, list[Measurement]] = {}
    shuffler = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        prepared = bench.loader_setting(Path(folder), None, images=600, seconds=4.0)
        for turn in range(repeats):
            for backend, workers in shuffler.sample(candidates, len(candidates)):
                candidate = Candidate(
                    backend=backend, num_workers=workers, prefetch_depth=2 if workers else 0, batch_size=64
                )
                seen = [m for earlier in results.values() for m in earlier]
                outcome, _ = measure(candidate, "candidate", prepared, run_noise=run_noise(seen))
                if outcome.measurement is None:
                    print(f"{candidate.key} failed: {outcome.failure}")
                    return 1
                results.setdefault(candidate.key, []).append(outcome.measurement)
                print(
                    f"{turn + 1:2}/{repeats} {candidate.key:22} {outcome.measurement.samples_per_s:8.1f}/s", flush=True
                )
    return report(results, options)


def report(results: dict[str, list[Measurement]], options: object) -> int:
    rows, numbers, covered, trials, halves = [], {}, 0, 0, []
    for key, measurements in results.items():
        rates = [m.samples_per_s for m in measurements]
        hits = 0
        for number, m in enumerate(measurements):
            truth = fmean(rates[:number] + rates[number + 1 :])
            hits += m.ci95[0] <= truth <= m.ci95[1]
        half = fmean((m.ci95[1] - m.ci95[0]) / 2 / m.samples_per_s for m in measurements)
        spread = stdev(rates) / fmean(rates)
        speeds = [(m.machine_speed_before + m.machine_speed_after) / 2 for m in measurements]
        machine_spread = stdev(speeds) / fmean(speeds)
        covered, trials = covered + hits, trials + len(rates)
        halves.append((half, max(WIDTH_ALWAYS_FINE, WIDEST_FACTOR * 1.96 * spread)))
        rows.append([
            key, str(len(rates)), f"{fmean(rates):.0f}/s", f"{100 * spread:.1f} %", f"{100 * machine_spread:.1f} %",
            f"±{100 * half:.1f} %", f"{hits}/{len(rates)}",
        ])  # fmt: skip
        numbers[key] = {
            "rates_samples_per_s": rates, "ci95": [m.ci95 for m in measurements], "relative_stdev": spread,
            "machine_speed_before": [m.machine_speed_before for m in measurements],
            "machine_speed_after": [m.machine_speed_after for m in measurements],
            "steady": [m.steady for m in measurements],
            "machine_speed_relative_stdev": machine_spread, "mean_half_interval": half, "covered": hits,
        }  # fmt: skip
    headings = ["candidate", "runs", "mean rate", "spread (sd)", "machine speed sd", "mean interval", "covered"]
    print("\n" + bench.table(headings, rows))
    chance = binomial_tail(covered, trials, 0.95)
    noise = run_noise(m for measurements in results.values() for m in measurements)
    honest = all(half <= widest for half, widest in halves)
    holds = chance >= 0.01 and honest
    print(
        f"\ncoverage {covered}/{trials} = {100 * covered / trials:.0f} % "
        f"(stated: 95 %; chance of so few: {chance:.3f}),"
    )
    print(f"intervals honest in width: {'yes' if honest else 'NO'}; run noise as estimated at the end: {noise:.3f}")
    print("the promise holds" if holds else "THE PROMISE DOES NOT HOLD")
    summary = {
        "coverage": covered / trials,
        "chance": chance,
        "run_noise": noise,
        "honest_width": honest,
        "candidates": numbers,
    }
    bench.write(options.json, "noise_floor", holds, summary)  # type: ignore[attr-defined]
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
