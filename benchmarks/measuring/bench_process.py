"""Is a candidate as fast in a fork of a process that has imported torch as in a new process?

Promise: rates in forks are those in new processes: the median within 3 %, and eleven in twelve as close as stated.

The ratio of rates is fork / new process, and what is stated is the interval that pipetune gives for such a ratio.

A sweep measures most candidates in forks, because importing torch takes longer than measuring many of them does. Every
candidate is measured in three ways, in random order in each round: in a new process, in a fork, and in one process
that measures all candidates one after the other, which is what pipetune does not do. The third is shown beside and not
judged. A candidate's ratio is the median over the rounds of the ratio within a round. Its stated interval is that of a
sweep which has made the measurements in new processes: the scatter within the runs, and that between runs, which the
same function estimates from them, for the median of as many rounds. Memory (PSS) is shown in the same way, and not
judged: the process that measures all candidates shares libraries with the new ones, whose memory looks smaller by that
than in a sweep, where forks and new processes differ by 2 % at most.

The accelerator is emulated and never the limit. ``--quick`` measures four candidates three times.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace
from math import hypot, sqrt
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import bench
from pipetune.candidates.allocators import available
from pipetune.candidates.space import canonical
from pipetune.measure import harness
from pipetune.measure.fork_servers import ForkServers, modules_for
from pipetune.records.sweep import Candidate, Outcome
from pipetune.registry import BACKENDS, installed_version
from pipetune.search.pooled import repetitions
from pipetune.stats.intervals import Z95
from pipetune.stats.noise import run_noise

NEW, FORK, SAME = "new process", "fork", "one process"
MODES = (NEW, FORK, SAME)
MAX_BIAS = 0.03
MIN_WITHIN = 11 / 12
#: Standard deviation of the median of so many normal values per that of their mean; 1.25 of many.
MEDIAN_TO_MEAN = {1: 1.0, 2: 1.0, 3: 1.16, 4: 1.09, 5: 1.20, 6: 1.14}
SECONDS = 2.0
ROUNDS, QUICK_ROUNDS = 6, 3
BATCH = 32


def candidates() -> Iterator[Candidate]:
    """At least one of each kind of loader, worker, memory and decoder that this machine can run."""

    def of(backend: str, workers: int, **settings: Any) -> Candidate:
        values = {"num_workers": workers, "prefetch_depth": 2 if workers else 0, "batch_size": BATCH, **settings}
        return canonical(Candidate(backend=backend, **values))

    yield of("pillow", 0)
    yield of("pillow", 2)
    yield of("opencv", 1)
    yield of("jpeg-roi", 1, loader="threads", transfer="uint8")
    yield of("pillow", 2, loader="threads")
    yield of("pillow", 2, reuse_buffers=True)
    yield of("pillow", 1, start_method="forkserver")
    yield of("opencv", 2, transfer="uint8")
    yield of("torchvision", 1)
    yield of("jpeg-roi", 2)
    yield of("simplejpeg", 1)
    yield of("spdl", 2)
    yield of("dali", 2)
    yield of("pillow-simd", 1)
    for allocator in available()[1:]:
        yield of("opencv", 0, allocator=allocator)


def main(options: Namespace) -> bench.Result:
    rounds = int(options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS))
    chosen = [c for c in candidates() if installed_version(BACKENDS[c.backend]) is not None]
    chosen = chosen[:4] if options.quick else chosen
    with tempfile.TemporaryDirectory(prefix="pipetune-bench-") as folder:
        new = bench.loader_setting(Path(folder), "synthetic:caltech256?n=600", seconds=SECONDS)
        modules = modules_for("emulated")
        servers = ForkServers(modules), ForkServers(modules, "benchmarks.measuring.one_process")
        conditions = {NEW: new, FORK: replace(new, servers=servers[0]), SAME: replace(new, servers=servers[1])}
        try:
            found = [measure_all(chosen, conditions, number) for number in range(rounds)]
        finally:
            for server in servers:
                server.close()
    return judge(chosen, found)


def measure_all(
    chosen: list[Candidate], conditions: dict[str, harness.Conditions], number: int
) -> dict[tuple[str, str], tuple[Outcome, float]]:
    """One round: every candidate in every way, the three of a candidate one after the other."""
    draw = random.Random(number)
    found = {}
    for candidate in draw.sample(chosen, len(chosen)):
        for mode in draw.sample(MODES, len(MODES)):
            began = time.monotonic()
            outcome, _ = harness.measure(candidate, "candidate", conditions[mode])
            if outcome.measurement is None:
                assert outcome.failure is not None
                raise RuntimeError(f"{candidate.key} in {mode}: {outcome.failure.message}")
            found[candidate.key, mode] = outcome, time.monotonic() - began
    print(f"round {number + 1} done", file=sys.stderr, flush=True)
    return found


def judge(chosen: list[Candidate], found: list[dict[tuple[str, str], tuple[Outcome, float]]]) -> bench.Result:
    """The table, and whether the promise holds."""
    new = [one[candidate.key, NEW][0] for one in found for candidate in chosen]
    between = run_noise([outcome.measurement for outcome in new], repetitions(new))
    rows, ratios, within, numbers = [], [], 0, {}
    for candidate in chosen:
        key = candidate.key
        measured = [{mode: of(*one[key, mode]) for mode in MODES} for one in found]

        def ratio(name: str, mode: str, measured: list[dict[str, Any]] = measured) -> list[float]:
            return [one[mode][name] / one[NEW][name] for one in measured]

        rates = ratio("samples_per_s", FORK)
        inside_runs = median(one[NEW]["within_frac"] for one in measured)
        stated = MEDIAN_TO_MEAN.get(len(found), 1.25) * Z95 * hypot(inside_runs, between) * sqrt(2 / len(found))
        inside = abs(median(rates) - 1) <= stated
        ratios.append(median(rates))
        within += inside
        same = ratio("samples_per_s", SAME)
        memory = median(ratio("pss_bytes", FORK))
        seconds = {mode: median(one[mode]["wall_s"] for one in measured) for mode in MODES}
        rows.append([
            key, bench.ratio_text(rates), f"±{stated:.2f}", bench.yes(inside), bench.ratio_text(same), f"{memory:.2f}",
            f"{seconds[FORK] / seconds[NEW]:.2f}",
        ])  # fmt: skip
        numbers[key] = {
            "rates_fork_by_new": rates, "rates_one_process_by_new": same, "stated": stated,
            "memory_fork_by_new": memory, "wall_s": seconds, "measured": measured,
        }  # fmt: skip
    headings = ["candidate", "fork / new", "stated", "within", "one process / new", "memory", "time"]
    print(bench.table(headings, rows))
    bias = median(ratios) - 1
    print(
        f"\nmedian ratio {1 + bias:.3f}; {within} of {len(chosen)} within what is stated; "
        f"runs scatter by {100 * between:.1f} %"
    )
    holds = abs(bias) <= MAX_BIAS and within >= MIN_WITHIN * len(chosen)
    return bench.Result(
        holds,
        {"median_ratio": 1 + bias, "within": within, "of": len(chosen), "run_noise": between, "candidates": numbers},
    )


def of(outcome: Outcome, wall_s: float) -> dict[str, Any]:
    """What is kept of a measurement."""
    m = outcome.measurement
    assert m is not None
    return {
        "samples_per_s": m.samples_per_s, "cpu_s_per_1000_samples": m.cpu_s_per_1000_samples,
        "pss_bytes": m.pss_bytes, "within_frac": (m.ci95[1] - m.ci95[0]) / 2 / Z95 / m.samples_per_s, "wall_s": wall_s,
    }  # fmt: skip


if __name__ == "__main__":
    bench.run(main, __file__, __doc__, rounds="how often each candidate is measured in each way")
