"""Do ranks that are measured together get what the host has, and is what is recommended for them right for them?

Promise: ranks together are as fast as the host allows, and the recommendation for them is within 5 % of their best.

In three parts, on emulated accelerators, which only sleep, so that many fit on few cores:

1. **The host's bound.** Jobs of their own (``--sync none``) with one decoder, as 1, 2, 4 and 8 ranks, each against
   accelerators of 200 to 1,000 samples/s. All together they should reach what their accelerators take, or else what the
   cores do: the usable cores divided by the CPU time per image of the same loader, measured in turn with the ranks by
   as many processes as fill the cores, which know nothing of each other. The promise holds where the node's rate is at
   least 95 % of the smaller one and no more than 105 %, in the median.
2. **The recommendation.** A sweep with R ranks recommends; then its candidate, the one-rank sweep's, the fastest that
   the sweep measured and all of a grid are measured with R ranks, in blocks of random order. The promise holds where
   what was recommended for R ranks has at most 5 % less goodput (at most the target of 90 %) than the best of them, and
   where in at least one case the one-rank answer has at least 20 % less, or the ranks' own answer would not be needed.
   Of more than the cores can do, the sweep has to say that the target is missed, and how many cores it would take.
3. **Steps that end together** (``--sync step``). Loaders that take no CPU time make batches at random times: workers of
   25 % more rate than the accelerator, with a coefficient of variation of 0.5. Goodput with 1, 2, 4 and 8 ranks is
   compared with a simulation of the same queue. The promise holds where they differ by at most 5 %.

``--quick`` takes fewer ranks, rates and blocks.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import re
import sys
import tempfile
from argparse import Namespace
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import bench
from benchmarks.search import waiting_ranks
from pipetune.accelerator.named import emulated_spec
from pipetune.candidates.space import canonical
from pipetune.machine.host import usable_cores
from pipetune.measure.conditions import Conditions
from pipetune.measure.harness import measure
from pipetune.records.sweep import Candidate, Measurement
from pipetune.report.sweep_text import conclusion_lines
from pipetune.runs.run import Run
from pipetune.sweeping.stored import sweep_result

WITHIN, AT_MOST_BELOW, ONE_RANK_LOSES = 0.05, 0.05, 0.20
TARGET = 0.9
#: Ranks and accelerators (samples/s each) of the first part.
BOUND_RANKS, BOUND_RATES = (1, 2, 4, 8), (200, 1000)
#: Ranks, accelerator and images of the second part.
CASES = ((2, 900, "synthetic:caltech256?n=800"), (4, 500, "synthetic:caltech256?n=800"),
         (8, 200, "synthetic:caltech256?n=800"))  # fmt: skip
#: More than two cores can do.
TOO_MUCH = (4, 2000, "synthetic:caltech256?n=800")
#: Candidates of the sweep itself that are measured beside the grid.
FASTEST = 4
WAITING_RANKS = (1, 2, 4, 8)
BLOCKS, QUICK_BLOCKS, BOUND_BLOCKS = 3, 2, 7
BATCH = 32


def main(options: Namespace) -> bench.Result:
    quick = options.quick
    with tempfile.TemporaryDirectory(prefix="pipetune-ranks-") as folder:
        parts = {
            "bound": bound(
                Path(folder), BOUND_RANKS[1::2] if quick else BOUND_RANKS, BOUND_RATES, 1 if quick else BOUND_BLOCKS
            ),
            "recommended": recommended(Path(folder), CASES[1:2] if quick else CASES, QUICK_BLOCKS if quick else BLOCKS),
            "waiting": waiting_ranks.compare(Path(folder), WAITING_RANKS[::2] if quick else WAITING_RANKS, WITHIN),
        }
    return bench.Result(all(part["holds"] for part in parts.values()), parts)


def bound(folder: Path, counts: Sequence[int], rates: Sequence[int], blocks: int) -> dict[str, Any]:
    """The first part: the node's rate beside what accelerators and cores allow."""
    base = bench.loader_setting(folder, "synthetic:caltech256?n=800", seconds=3.0)
    cores, rows, cases = usable_cores(), [], []
    for count in counts:
        candidate = of("opencv", 0 if count > cores else max(1, round(cores / count)))
        found: dict[int, list[tuple[float, float]]] = {rate: [] for rate in rates}
        for block in range(blocks):
            by_cores = 1000 * cores / cpu_time(candidate, with_ranks(base, 1, 1e5), round(cores))
            for rate in random.Random(block).sample(list(rates), len(rates)):
                node = measured(candidate, with_ranks(base, count, rate, sync="none")).samples_per_s
                found[rate].append((node, by_cores))
        for rate, pairs in found.items():
            shares = [node / min(count * rate, by_cores) for node, by_cores in pairs]
            holds = 1 - WITHIN <= median(shares) <= 1 + WITHIN
            by_cores = median(by_cores for _, by_cores in pairs)
            cases.append({"ranks": count, "rate": rate, "candidate": candidate.key, "pairs": pairs, "shares": shares,
                          "holds": holds})  # fmt: skip
            by = "accelerators" if by_cores > count * rate else "cores"
            rows.append([
                f"{count} x {rate}/s", candidate.key, f"{median(node for node, _ in pairs):.0f}",
                f"{min(count * rate, by_cores):.0f}", by, bench.ratio_text(shares), bench.yes(holds),
            ])  # fmt: skip
    print(bench.table(["ranks", "candidate", "samples/s", "allowed", "by", "share", "holds"], rows, left=(0, 1, 4)))
    return {"holds": all(case["holds"] for case in cases), "cases": cases}


def cpu_time(candidate: Candidate, conditions: Conditions, cores: int) -> float:
    """CPU seconds per 1,000 samples of one rank, beside others of its kind that fill the cores."""
    jobs = max(1, cores // max(1, candidate.num_workers))
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=spawn, initializer=one_thread) as pool:
        costs = list(pool.map(measured_cpu_time, [candidate] * jobs, [conditions] * jobs))
    return sum(costs) / jobs


def one_thread() -> None:
    """As launchers of ranks have it: torch's own threads, as many in each process as there are cores, would disturb."""
    os.environ["OMP_NUM_THREADS"] = "1"


def measured_cpu_time(candidate: Candidate, conditions: Conditions) -> float:
    """CPU seconds per 1,000 samples."""
    cost = measured(candidate, conditions).cpu_s_per_1000_samples
    if cost is None:
        raise RuntimeError(f"{candidate.key}: no CPU time was read")
    return cost


def recommended(folder: Path, cases: Sequence[tuple[int, int, str]], blocks: int) -> dict[str, Any]:
    """The second part: what is recommended for R ranks, for one, and the best of a grid, all with R ranks."""
    import pipetune

    rows, found, lost_by_one = [], [], []
    for count, rate, dataset in cases:
        answers = {}
        for ranks in (count, 1):
            run = pipetune.sweep(
                dataset, device=f"emulated:{rate}", ranks=ranks, batch_size=BATCH, seconds=2.0, progress=False,
                out=folder / f"sweep-{count}-{ranks}",
            )  # fmt: skip
            chosen = next(o.candidate for o in run.outcomes if o.candidate.key == run.recommended_key)
            answers[ranks] = chosen
            if ranks == count:
                fastest = fastest_of(run)
        grid = {c.key: c for c in (*answers.values(), *fastest, *grid_for(count))}
        base = bench.loader_setting(folder, dataset, seconds=3.0)
        goodputs = side_by_side(list(grid.values()), with_ranks(base, count, rate), blocks)
        reached = {key: min(TARGET, median(values)) for key, values in goodputs.items()}
        best = max(reached, key=lambda key: reached[key])
        ours, single = (reached[answers[ranks].key] for ranks in (count, 1))
        holds = ours >= (1 - AT_MOST_BELOW) * reached[best]
        lost = 1 - single / ours if ours else 0.0
        lost_by_one.append(lost)
        found.append({
            "ranks": count, "rate": rate, "for_ranks": answers[count].key, "for_one": answers[1].key, "best": best,
            "goodput": goodputs, "holds": holds, "one_rank_answer_loses": lost,
        })  # fmt: skip
        rows.append([
            f"{count} x {rate}/s", answers[count].key, f"{ours:.3f}", answers[1].key, f"{single:.3f}", best,
            f"{reached[best]:.3f}", bench.yes(holds), f"{100 * lost:.0f} %",
        ])  # fmt: skip
    print(bench.table(
        ["ranks", "for them", "goodput", "for one", "goodput", "grid's best", "goodput", "holds", "one's loses"], rows,
        left=(0, 1, 3, 5),
    ))  # fmt: skip
    needed = max(lost_by_one) >= ONE_RANK_LOSES
    if not needed:
        print(f"no one-rank answer loses {100 * ONE_RANK_LOSES:.0f} %")
    too_much = infeasible(folder)
    holds = needed and too_much["holds"] and all(case["holds"] for case in found)
    return {"holds": holds, "cases": found, "infeasible": too_much}


def infeasible(folder: Path) -> dict[str, Any]:
    """Whether a sweep says of more than the cores can do that the target is missed, and how many cores it takes."""
    import pipetune

    count, rate, dataset = TOO_MUCH
    run = pipetune.sweep(
        dataset, device=f"emulated:{rate}", ranks=count, batch_size=BATCH, seconds=2.0, progress=False,
        out=folder / "infeasible",
    )  # fmt: skip
    chosen = next(o for o in reversed(run.outcomes) if o.candidate.key == run.recommended_key and o.measurement)
    assert chosen.measurement is not None
    cost = chosen.measurement.cpu_s_per_1000_samples or 0.0
    cores = TARGET * count * rate * cost / 1000
    text = " ".join(line.text for line in conclusion_lines(sweep_result(run)))
    stated = re.search(r"would need about ([0-9.]+) cores", text)
    holds = run.result["status"] == "target_missed" and stated is not None
    holds = holds and abs(float(stated[1]) / cores - 1) <= 0.1 if stated else False
    print(f"{count} x {rate}/s: {run.result['status']}, {stated[0] if stated else 'no number of cores'}"
          f" ({cores:.1f} by its CPU time per image): {bench.yes(holds)}")  # fmt: skip
    return {"holds": holds, "status": run.result["status"], "stated": stated and float(stated[1]), "cores": cores}


def fastest_of(run: Run) -> list[Candidate]:
    """The fastest candidates that a sweep has measured."""
    rates = {o.candidate: o.measurement.samples_per_s for o in run.outcomes if o.measurement and o.role != "ceiling"}
    return sorted(rates, key=lambda candidate: -rates[candidate])[:FASTEST]


def grid_for(count: int) -> list[Candidate]:
    """Two decoders, processes and threads, as many workers as a rank may have."""
    most = max(1, round(2 * usable_cores() / count))
    return [
        of(backend, workers, loader=loader)
        for backend in ("opencv", "jpeg-roi")
        for loader in ("torch", "threads")
        for workers in sorted({0, 1, most})
        if workers or loader == "torch"
    ]


def side_by_side(candidates: list[Candidate], conditions: Conditions, blocks: int) -> dict[str, list[float]]:
    """Goodput of each candidate in each block; 0 where it failed."""
    ceiling = measured(candidates[0], conditions, role="ceiling")
    found: dict[str, list[float]] = {candidate.key: [] for candidate in candidates}
    for block in range(blocks):
        for candidate in random.Random(block).sample(candidates, len(candidates)):
            outcome, _ = measure(candidate, "candidate", conditions, ceiling=ceiling)
            goodput = None if outcome.measurement is None else outcome.measurement.goodput
            found[candidate.key].append(goodput or 0.0)
    return found


def of(backend: str, workers: int, **settings: Any) -> Candidate:
    return canonical(Candidate(
        backend=backend, num_workers=workers, prefetch_depth=2 if workers else 0, batch_size=BATCH, **settings,
    ))  # fmt: skip


def with_ranks(base: Conditions, count: int, rate: float, sync: str = "step") -> Conditions:
    return replace(base, workload=replace(
        base.workload, ranks=count, sync=sync, accelerator=emulated_spec(f"{rate:g}"),
    ))  # fmt: skip


def measured(candidate: Candidate, conditions: Conditions, role: str = "candidate") -> Measurement:
    outcome, _ = measure(candidate, role, conditions)
    if outcome.measurement is None:
        assert outcome.failure is not None
        raise SystemExit(f"{candidate.key} as a {role} failed: {outcome.failure.message}")
    return outcome.measurement


if __name__ == "__main__":
    bench.run(main, __file__, __doc__)
