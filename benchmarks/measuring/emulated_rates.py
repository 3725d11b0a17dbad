"""Is the goodput right on both sides of the limit? One loader, accelerators from slow to far too fast.

Promise: goodput is 1 with a slow accelerator and loader rate / accelerator rate with a fast one, within its interval.

The loader's own rate is measured in the same run, in alternation with the others, against an accelerator that is never
the limit. A point counts as inside when the expected and the measured goodput differ by no more than their intervals
added in quadrature; of all points at least 90 % must be inside, and none may be off by more than 15 %. Factors near 1
are left out: there both limits act at once and min(1, L/G) is only a bound.

With --photos the images are a folder of real photographs instead of synthetic ones. ``--quick`` takes about 3 minutes,
the full run about 15.
"""

from __future__ import annotations

import math
import random
import sys
import tempfile
from argparse import Namespace
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import bench
from pipetune.accelerator.named import emulated_spec
from pipetune.measure.conditions import Conditions
from pipetune.measure.harness import measure
from pipetune.records.sweep import Candidate, Measurement
from pipetune.stats.noise import run_noise

FACTORS = (0.1, 0.3, 0.6, 1.6, 3.0, 10.0)
CANDIDATES = (
    Candidate(backend="opencv", num_workers=2, prefetch_depth=2, batch_size=64),
    Candidate(backend="pillow", num_workers=0, prefetch_depth=0, batch_size=64),
)
MAX_ERROR, MIN_INSIDE = 0.15, 0.90
#: An accelerator that is never the limit (samples/s).
UNLIMITED = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One accelerator rate, and the goodput measured with it."""

    candidate: Candidate
    factor: float
    ceiling: float
    """The accelerator's rate (samples/s)."""
    measurement: Measurement
    expected: float
    allowed: float
    """Largest relative error that both intervals allow."""

    @property
    def goodput(self) -> float:
        """As measured."""
        return self.measurement.samples_per_s / self.ceiling

    @property
    def error(self) -> float:
        """Relative, of the goodput."""
        return self.goodput / self.expected - 1

    @property
    def inside(self) -> bool:
        """Whether the intervals allow the error."""
        return abs(self.error) <= self.allowed


def main(options: Namespace) -> bench.Result:
    rounds, candidates = (1, CANDIDATES[:1]) if options.quick else (3, CANDIDATES)
    shuffler = random.Random(3)
    with tempfile.TemporaryDirectory() as folder:
        setting = bench.loader_setting(Path(folder), options.photos or "synthetic:caltech256?n=600", seconds=3.0)
        points = [
            point for candidate in candidates for point in points_of(candidate, setting, rounds, shuffler)
        ]  # fmt: skip
    points.sort(key=lambda point: (point.candidate.key, point.factor))
    print(bench.table(
        ["candidate", "G / loader", "G", "expected", "goodput", "busy", "error", "allowed", "inside"],
        [[p.candidate.key, f"{p.factor:g}", f"{p.ceiling:.0f}/s", f"{p.expected:.3f}", f"{p.goodput:.3f}",
          f"{p.measurement.gpu_util_pct:.0f} %", f"{100 * p.error:+.1f} %", f"±{100 * p.allowed:.1f} %",
          bench.yes(p.inside)] for p in points],
    ))  # fmt: skip
    share, worst = fmean(point.inside for point in points), max(abs(point.error) for point in points)
    print(f"\ninside: {100 * share:.0f} % of {len(points)}, largest error {100 * worst:.1f} %")
    return bench.Result(share >= MIN_INSIDE and worst <= MAX_ERROR, {
        "images": "photographs" if options.photos else "synthetic:caltech256", "inside": share, "largest_error": worst,
        "points": [
            {"candidate": p.candidate.key, "factor": p.factor, "ceiling_samples_per_s": p.ceiling,
             "expected_goodput": p.expected, "goodput": p.goodput, "ci95_samples_per_s": p.measurement.ci95,
             "gpu_util_pct": p.measurement.gpu_util_pct, "inside": p.inside}
            for p in points
        ],
    })  # fmt: skip


def points_of(candidate: Candidate, setting: Conditions, rounds: int, shuffler: random.Random) -> list[Point]:
    """Measure one loader at all rates, in alternation with its own rate."""
    own = [measured(candidate, setting, UNLIMITED, [])]
    found = []
    for _ in range(rounds):
        for factor in shuffler.sample(FACTORS, len(FACTORS)):
            ceiling = factor * own[0].samples_per_s
            found.append((factor, ceiling, measured(candidate, setting, ceiling, own)))
            own.append(measured(candidate, setting, UNLIMITED, own))
    loader_rate = fmean(m.samples_per_s for m in own)
    loader_half = median(relative_half(m) for m in own) / math.sqrt(len(own))
    points = []
    for factor, ceiling, m in found:
        expected = min(1.0, loader_rate / ceiling)
        allowed = math.hypot(relative_half(m), loader_half if expected < 1 else 0.0)
        points.append(Point(
            candidate=candidate, factor=factor, ceiling=ceiling, measurement=m, expected=expected, allowed=allowed,
        ))  # fmt: skip
    return points


def measured(candidate: Candidate, setting: Conditions, rate: float, seen: list[Measurement]) -> Measurement:
    workload = replace(setting.workload, accelerator=emulated_spec(f"{rate:g}"))
    outcome, _ = measure(candidate, "candidate", replace(setting, workload=workload), run_noise=run_noise(seen))
    if outcome.measurement is None:
        raise SystemExit(f"{candidate.key} failed: {outcome.failure}")
    return outcome.measurement


def relative_half(m: Measurement) -> float:
    """Half the width of the interval, relative to the rate."""
    return (m.ci95[1] - m.ci95[0]) / 2 / m.samples_per_s


if __name__ == "__main__":
    bench.run(main, __file__, __doc__, photos="a folder of real photographs (JPEG) instead of synthetic ones")
