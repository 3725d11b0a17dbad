"""Ranks whose loaders take no CPU time and make batches at random times: as measured, and as a simulation has them.

A loader is torch's own, with workers that sleep. The simulation has its rules: a worker is given a new batch to make
when the loop takes one, batches come in their order, and the loop runs as far ahead of its accelerator as ours does:
two steps, which helps a little against batches that come late.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks import bench
from pipetune.accelerator.contract import MAX_IN_FLIGHT
from pipetune.accelerator.named import emulated_spec
from pipetune.measure.harness import measure
from pipetune.records.sweep import Candidate
from pipetune.usercode import make_loader

WORKERS, PREFETCH, BATCH = 4, 2, 32
#: Of each accelerator (samples/s): 40 steps a second.
RATE = 1280.0
#: A loader alone has so much more rate, and the times of its batches this standard deviation / mean.
FASTER, VARIATION = 1.25, 0.5
SECONDS, REPEATS, SIMULATED_STEPS = 10.0, 3, 20_000


def make(num_workers: int, prefetch_factor: int, batch_size: int) -> Any:
    """The loader: each of its items is a batch, which a worker makes by sleeping."""
    import random
    import time

    import torch

    mean_s, shape = num_workers * batch_size / (FASTER * RATE), VARIATION**-2

    class Sleeping(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return 1_000_000

        def __getitem__(self, item: int) -> Any:
            time.sleep(random.SystemRandom().gammavariate(shape, mean_s / shape))
            return torch.zeros(batch_size, 3, 8, 8), torch.zeros(batch_size, dtype=torch.int64)

    return torch.utils.data.DataLoader(
        Sleeping(), batch_size=None, num_workers=num_workers, prefetch_factor=prefetch_factor
    )


def simulated(ranks: int, steps: int = SIMULATED_STEPS, seed: int = 0) -> float:
    """Goodput by the rules above."""
    draw = random.Random(seed)
    step_s, mean_s, shape = BATCH / RATE, WORKERS * BATCH / (FASTER * RATE), VARIATION**-2
    ahead = WORKERS * PREFETCH
    free = [[0.0] * WORKERS for _ in range(ranks)]
    taken: list[list[float]] = [[] for _ in range(ranks)]
    asked = [0.0] * ranks
    ends = [0.0] * MAX_IN_FLIGHT  # of all ranks, the newest last
    for number in range(steps):
        own_ends = []
        for rank in range(ranks):
            given = taken[rank][number - ahead] if number >= ahead else 0.0
            worker = number % WORKERS
            free[rank][worker] = max(given, free[rank][worker]) + draw.gammavariate(shape, mean_s / shape)
            there = max(asked[rank], free[rank][worker])
            taken[rank].append(there)
            own_ends.append(max(there, ends[-1]) + step_s)
            asked[rank] = max(there, ends[-MAX_IN_FLIGHT])
        ends.append(max(own_ends))
    half = steps // 2
    return (steps - half) * step_s / (ends[-1] - ends[-1 - (steps - half)])


def compare(folder: Path, counts: Sequence[int], within: float) -> dict[str, Any]:
    """Goodput of some numbers of ranks, measured and simulated."""
    packed = folder / make_loader.FILE
    packed.write_bytes(make_loader.pack(_by_value(make)))
    base = bench.loader_setting(folder, "synthetic:caltech256?n=100", seconds=SECONDS)
    candidate = Candidate(
        backend="own", loader="user", num_workers=WORKERS, prefetch_depth=PREFETCH, batch_size=BATCH, pin_memory=False
    )
    rows, cases = [], []
    for ranks in counts:
        workload = replace(
            base.workload,
            ranks=ranks,
            loader_path=str(packed),
            accelerator=emulated_spec(f"{RATE:g}"),
            dataset="own:make",
        )
        found = []
        for _ in range(REPEATS):
            outcome, _ = measure(candidate, "candidate", replace(base, workload=workload, paths=()))
            if outcome.measurement is None:
                raise SystemExit(f"{ranks} ranks failed: {outcome.failure}")
            found.append(outcome.measurement.samples_per_s / (ranks * RATE))
        expected = simulated(ranks)
        off = fmean(found) / expected - 1
        holds = abs(off) <= within
        cases.append({"ranks": ranks, "measured": found, "simulated": expected, "holds": holds})
        each = ", ".join(f"{goodput:.3f}" for goodput in found)
        rows.append([str(ranks), each, f"{expected:.3f}", f"{100 * off:+.1f} %", bench.yes(holds)])
    print(bench.table(["ranks", "goodput, measured", "simulated", "off by", "holds"], rows, left=(0, 1)))
    return {"holds": all(case["holds"] for case in cases), "cases": cases}


def _by_value(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as a notebook's is: another process does not import this module."""
    import sys

    import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[function.__module__])
    return function
