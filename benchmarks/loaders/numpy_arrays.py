"""Is a loader of numpy arrays, which needs no torch, as fast as the same loader of tensors?

Promise: ``open_loader(…, arrays="numpy")`` has at least 0.97 of the rate of the same threads that make tensors.

Photographs as in Caltech-256, threads, uint8 and float32, OpenCV and jpeg-roi where it is installed. All loaders are
open at the same time, and epochs of each are iterated in turn, in random order, with nothing done with the batches. The
promise holds where for each the 95 % interval of the median of the ratios reaches 0.97.

Arrays have the colours of a pixel beside each other, as JAX and TensorFlow want them, and so have the tensors that they
are compared with (the setting channels_last). The rate of tensors with a plane for each colour, which is torch's
default, is shown beside it: which order a decoder writes faster is its own affair.
"""

from __future__ import annotations

import random
import sys
import time
from argparse import Namespace
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import bench

LEAST = 0.97
BACKENDS, TRANSFERS = ("opencv", "jpeg-roi"), ("uint8", "float32")
IMAGES, QUICK_IMAGES = 3200, 1600
TURNS, QUICK_TURNS = 12, 5
BATCH, WORKERS = 32, 2


def main(options: Namespace) -> bench.Result:
    import pipetune
    from pipetune.records.sweep import Candidate
    from pipetune.registry import find_backend, installed_version

    images, turns = (QUICK_IMAGES, QUICK_TURNS) if options.quick else (IMAGES, TURNS)
    rows: list[list[str]] = []
    cases: list[dict[str, Any]] = []
    for backend in BACKENDS:
        if installed_version(find_backend(backend)) is None:
            print(f"left out: {backend} is not installed")
            continue
        for transfer in TRANSFERS:
            chosen = Candidate(backend=backend, num_workers=WORKERS, prefetch_depth=2, batch_size=BATCH,
                               loader="threads", transfer=transfer)  # fmt: skip
            dataset = f"synthetic:caltech256?n={images}"
            with (
                pipetune.open_loader(chosen, dataset, arrays="numpy") as arrays,
                pipetune.open_loader(replace(chosen, channels_last=True), dataset, device="cpu") as tensors,
                pipetune.open_loader(chosen, dataset, device="cpu") as planes,
            ):
                ratios, beside = in_turn(arrays, tensors, planes, turns)
            _, high = bench.bootstrap_ci95(ratios)
            holds = max(median(ratios), high) >= LEAST
            cases.append({
                "backend": backend, "transfer": transfer, "ratios": ratios, "beside_planes": beside, "holds": holds,
            })  # fmt: skip
            rows.append([backend, transfer, bench.ratio_text(ratios, 3), bench.yes(holds),
                         bench.ratio_text(beside, 3)])  # fmt: skip
    if not cases:
        raise bench.Skipped(f"none of {', '.join(BACKENDS)} is installed")
    print(bench.table(["decoder", "values", "arrays / tensors", "holds", "arrays / planes"], rows, left=(0, 1)))
    return bench.Result(all(case["holds"] for case in cases), {"cases": cases})


def in_turn(
    arrays: Iterable[object], tensors: Iterable[object], planes: Iterable[object], turns: int
) -> tuple[list[float], list[float]]:
    """Ratios of the rate of arrays to both others, one for each turn; the first, which reads the files, is left out."""
    loaders = {"arrays": arrays, "tensors": tensors, "planes": planes}
    ratios, beside = [], []
    for turn in range(turns + 1):
        seconds: dict[str, float] = {}
        for name in random.sample(list(loaders), len(loaders)):
            began = time.monotonic()
            for _ in loaders[name]:
                pass
            seconds[name] = time.monotonic() - began
        if turn:
            ratios.append(seconds["tensors"] / seconds["arrays"])
            beside.append(seconds["planes"] / seconds["arrays"])
    return ratios, beside


if __name__ == "__main__":
    bench.run(main, __file__, __doc__)
