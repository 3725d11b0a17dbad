"""Does ``pipetune batch-size`` find what bisection finds, in few processes?

Promise: the largest batch is within 3 % of bisection's, found in at most 6 processes with one out of memory at most.

On the tests' stand-in for the CUDA runtime, whose memory is real: allocating more fails as on a GPU. Kernels take the
same time for any batch there, so rates grow to the end, and the knee is near the largest batch; that it is found where
rates level off is tested on paper (``tests/unit/scaling/test_batch_size.py``). Bisection measures in the same way, each
batch size in a process of its own, between 1 and twice what fake tensors predict, down to steps of eight. The promise
holds where for each case the largest is at most 3 %, or eight, below bisection's (what is above was measured to fit,
too: how torch's allocator is fragmented is not the same each time), the recommended one has at least 0.97 of the best
rate of all that both have measured, and no more processes and failures were needed than promised.

No real GPU has run it. ``--quick`` takes one case.
"""

from __future__ import annotations

import json
import sys
import tempfile
from argparse import Namespace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import bench
from tests import fake_cuda

NEAR, MOST_PROCESSES, MOST_FAILURES, FAST = 0.03, 6, 1, 0.97
#: Model, crop (px) and memory of the device (MB).
CASES = (("squeezenet1_1", 64, 700), ("resnet18", 64, 900), ("mobilenet_v2", 64, 1200))
PROGRAM = """
import json, sys
from dataclasses import asdict
from tests.fake_cuda import forking
forking.install()
import pipetune.scaling.batch_run as batch_run
from pipetune.scaling.batch_size import rounded
model, size = sys.argv[1], int(sys.argv[2])
chosen = batch_run.BatchOptions(model=model, image_size=size, precision="fp32", device="cuda:0", seconds=0.4,
                                dataset="synthetic:caltech256?n=16")
found = batch_run.find_batch_size(chosen, lambda point: None, lambda size: None, lambda stop: None)
points, low, high = [], 1, 2 * found.predicted_largest
while rounded(high) - rounded(low) > 8:
    middle = rounded((low + high) / 2)
    points.append(batch_run.measure_batch_size(chosen, middle, found.limit_bytes))
    fits = points[-1].peak_bytes is not None and points[-1].peak_bytes <= found.limit_bytes
    low, high = (middle, high) if fits else (low, middle)
print(json.dumps({"found": asdict(found), "bisection": [asdict(point) for point in points], "largest": low}))
"""


def main(options: Namespace) -> bench.Result:
    if (reason := fake_cuda.why_not()) is not None:
        raise bench.Skipped(reason)
    rows: list[list[str]] = []
    cases: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="pipetune-batch-") as scratch:
        folder = Path(scratch)
        (folder / "lib").mkdir()
        library = fake_cuda.build(folder / "lib")
        for number, (model, size, memory) in enumerate(CASES[:1] if options.quick else CASES):
            place = folder / f"place-{number}"
            place.mkdir()
            env = fake_cuda.environment(library, place, memory_mb=memory, kernel_us=40)
            cases.append(
                judged(model, size, memory, fake_cuda.run(PROGRAM, env, model, str(size), timeout_s=900), rows)
            )
            print(json.dumps({k: v for k, v in cases[-1].items() if k != "points"}), flush=True)
    print(bench.table(
        ["case", "largest", "bisection", "processes", "of bisection", "failures", "rate of the recommended", "holds"],
        rows,
    ))  # fmt: skip
    return bench.Result(all(case["holds"] for case in cases), {"cases": cases})


def judged(model: str, size: int, memory: int, answer: dict[str, Any], rows: list[list[str]]) -> dict[str, Any]:
    """One case: ours beside bisection's."""
    found, other = answer["found"], answer["bisection"]
    largest, truth = found["largest"] or 0, answer["largest"]
    rates = {point["batch_size"]: point["samples_per_s"] for point in (*other, *found["points"])
             if point["samples_per_s"] and point["peak_bytes"] <= found["limit_bytes"]}  # fmt: skip
    share = rates.get(found["knee"], 0.0) / max(rates.values(), default=1.0)
    failures = sum(point["out_of_memory"] for point in found["points"])
    holds = truth - largest <= max(8, NEAR * truth) and share >= FAST  # a larger one was measured to fit, too
    holds = holds and len(found["points"]) <= MOST_PROCESSES and failures <= MOST_FAILURES
    rows.append([f"{model}, {size} px, {memory} MB", f"{largest}", f"{truth}", f"{len(found['points'])}",
                 f"{len(other)}", f"{failures}", f"{share:.3f}", bench.yes(holds)])  # fmt: skip
    return {
        "case": [model, size, memory], "largest": largest, "bisection": truth, "processes": len(found["points"]),
        "bisection_processes": len(other), "failures": failures, "knee": found["knee"], "rate": share,
        "predicted": found["predicted_largest"], "holds": holds, "points": found["points"],
    }  # fmt: skip


if __name__ == "__main__":
    bench.run(main, __file__, __doc__)
