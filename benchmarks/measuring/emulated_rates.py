"""Does the bench say the right thing on both sides of the limit? One loader, accelerators from slow to far too fast.

Promise: with an accelerator slower than the loader the goodput is 1, with a faster one it is loader rate / accelerator
rate, inside the stated intervals. The loader's own rate is measured in the same run, in alternation with the others,
against an accelerator that takes everything. A point counts as inside when the expected and the measured goodput differ
by no more than their intervals added in quadrature; of all points at least 90 % must be inside, and none may be off by
more than 15 %. Factors near 1 are left out: there both limits act at once and min(1, L/G) is only a bound.

With --photos the images are a folder of real photographs instead of synthetic ones.
"""

from __future__ import annotations

import math
import random
import sys
import tempfile
from pathlib import Path
from statistics import fmean, median

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from dataclasses import replace

from benchmarks import bench
from pipetune.accelerator.named import emulated_spec
from pipetune.measure.harness import Setting, measure
from pipetune.records.sweep import Candidate, Measurement
from pipetune.stats.noise import run_noise

FACTORS = (0.1, 0.3, 0.6, 1.6, 3.0, 10.0)
CANDIDATES = (
    Candidate(backend="opencv", num_workers=2, prefetch_depth=2, batch_size=64),
    Candidate(backend="pillow", num_workers=0, prefetch_depth=0, batch_size=64),
)
LARGEST_ERROR = 0.15
LEAST_INSIDE = 0.90


def at_rate(setting: Setting, rate: float) -> Setting:
    return replace(setting, workload=replace(setting.workload, accelerator=emulated_spec(f"{rate:g}")))


def measured(candidate: Candidate, setting: Setting, seen: list[Measurement]) -> Measurement:
    outcome, _ = measure(candidate, "candidate", setting, run_noise=run_noise(seen))
    if outcome.measurement is None:
        raise SystemExit(f"{candidate.key} failed: {outcome.failure}")
    return outcome.measurement


def relative_half(m: Measurement) -> float:
    return (m.ci95[1] - m.ci95[0]) / 2 / m.samples_per_s


def main() -> int:
    options = bench.arguments(__doc__, photos="folder of photographs")
    rounds, candidates = (1, CANDIDATES[:1]) if options.quick else (3, CANDIDATES)
    rows, points = [], []
    shuffler = random.Random(3)
    with tempfile.TemporaryDirectory() as folder:
        setting = bench.loader_setting(Path(folder), options.photos, images=600, seconds=3.0)
        for candidate in candidates:
            own = [measured(candidate, at_rate(setting, 1e6), [])]
            for _ in range(rounds):
                for factor in shuffler.sample(FACTORS, len(FACTORS)):
                    ceiling = factor * own[0].samples_per_s
                    m = measured(candidate, at_rate(setting, ceiling), own)
                    points.append((candidate.key, factor, ceiling, m))
                    own.append(measured(candidate, at_rate(setting, 1e6), own))
            loader_rate = fmean(m.samples_per_s for m in own)
            loader_half = median(relative_half(m) for m in own) / math.sqrt(len(own))
            for key, factor, ceiling, m in [point for point in points if point[0] == candidate.key]:
                expected = min(1.0, loader_rate / ceiling)
                allowed = math.hypot(relative_half(m), loader_half if expected < 1 else 0.0)
                goodput = m.samples_per_s / ceiling
                error = goodput / expected - 1
                inside = abs(error) <= allowed
                rows.append((key, factor, ceiling, expected, goodput, m, error, allowed, inside))
    rows.sort(key=lambda row: row[:2])
    print(bench.table(
        ["candidate", "G / loader", "G", "expected", "goodput", "busy", "error", "allowed", "inside"],
        [[key, f"{factor:g}", f"{ceiling:.0f}/s", f"{expected:.3f}", f"{goodput:.3f}", f"{m.gpu_util_pct:.0f} %",
          f"{100 * error:+.1f} %", f"±{100 * allowed:.1f} %", "yes" if inside else "NO"]
         for key, factor, ceiling, expected, goodput, m, error, allowed, inside in rows],
    ))  # fmt: skip
    share = fmean(row[-1] for row in rows)
    worst = max(abs(row[6]) for row in rows)
    holds = share >= LEAST_INSIDE and worst <= LARGEST_ERROR
    print(f"\ninside: {100 * share:.0f} % of {len(rows)}, largest error {100 * worst:.1f} %")
    print("the promise holds" if holds else "THE PROMISE DOES NOT HOLD")
    bench.write(options.json, "emulated_rates", holds, {
        "images": "photographs" if options.photos else "synthetic:caltech256", "inside": share, "largest_error": worst,
        "points": [
            {"candidate": key, "factor": factor, "ceiling_samples_per_s": ceiling, "expected_goodput": expected,
             "goodput": goodput, "ci95_samples_per_s": m.ci95, "gpu_util_pct": m.gpu_util_pct, "inside": inside}
            for key, factor, ceiling, expected, goodput, m, _, _, inside in rows
        ],
    })  # fmt: skip
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
