"""A part of the GPU suite: what ``pipetune batch-size`` finds, of a model and in a training script."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import bench
from benchmarks.gpu.workloads import MODEL
from pipetune.records.batch_size import BatchPoint, BatchSizes
from pipetune.records.sweep import to_dict
from pipetune.report.batch_size_text import HEADERS, batch_lines, batch_rows, heading
from pipetune.scaling import batch_run
from pipetune.scaling.batch_script import ScriptOptions, find_script_batch_size
from pipetune.scaling.batch_size import rounded

#: Is given the name of a model or script and a :class:`pipetune.records.batch_size.BatchPoint` as JSON has it.
OnPoint = Callable[[str, dict[str, Any]], None]

SCRIPT = Path(__file__).resolve().parents[2] / "tests" / "scripts" / "on_gpu.py"
#: The largest batch is right where one that is so much larger, and eight samples, does not fit: the search leaves 3 %
#: for fragments, and rounds to eight.
NEAR = 0.05
SECONDS = 0.5
#: A share of the memory keeps batches of a large device small, so that each is measured within seconds.
MEMORY = 0.2
#: The script's batches come from the host: a share of the memory keeps them small.
SCRIPT_MEMORY = 0.1


def batch_sizes(name: str, quick: bool, on_point: OnPoint = lambda subject, point: None) -> dict[str, Any]:
    """The batch size of a model, with checkpointing as well unless ``quick``, and of a script on the GPU.

    Args:
        on_point: is given each batch size when it was measured, with the name of the model or script: what a part that
            runs out of time has to keep.
    """
    if not name.startswith("cuda"):
        raise bench.Skipped("an emulated accelerator has no memory that a batch could fill")
    chosen = batch_run.BatchOptions(model=MODEL, device=name, seconds=SECONDS, memory=MEMORY, checkpointing=not quick)
    of_model, model_s = timed(
        lambda: batch_run.find_batch_size(chosen, keeper(MODEL, on_point), lambda size: None, raised)
    )
    above = next_larger(chosen, of_model)
    keeper(MODEL, on_point)(above)
    script = ScriptOptions(command=(sys.executable, str(SCRIPT)), memory=SCRIPT_MEMORY, seconds=SECONDS)
    of_script, script_s = timed(
        lambda: find_script_batch_size(script, keeper(SCRIPT.name, on_point), lambda size: None, raised)
    )
    problems = [f"{found.model}: {problem}" for found in (of_model, of_script) for problem in problems_of(found)]
    if of_model.largest is not None and above.peak_bytes is not None and above.peak_bytes <= of_model.limit_bytes:
        problems.append(
            f"{MODEL}: batches of {above.batch_size} fit, too, and {of_model.largest} is said to be the largest"
        )
    lines = [line for found in (of_model, of_script) for line in lines_of(found)]
    return {
        "model": to_dict(of_model), "model_s": model_s, "above": to_dict(above),
        "script": to_dict(of_script), "script_s": script_s, "lines": lines, "problems": problems,
    }  # fmt: skip


def timed(find: Callable[[], BatchSizes]) -> tuple[BatchSizes, float]:
    began = time.monotonic()
    return find(), time.monotonic() - began


def next_larger(chosen: batch_run.BatchOptions, found: BatchSizes) -> BatchPoint:
    """A batch that is a little larger than the largest, measured in the same way."""
    size = rounded((1 + NEAR) * (found.largest or 1)) + 8
    return batch_run.measure_batch_size(chosen, size, found.limit_bytes)


def problems_of(found: BatchSizes) -> list[str]:
    problems = [] if found.stopped is None else [f"it did not come to its end: {found.stopped}"]
    if found.knee is None:
        problems.append("nothing fits")
    for kept in (False, True):
        failures = sum(point.out_of_memory for point in found.points if point.checkpointing is kept)
        if failures > 1:
            problems.append(f"{failures} batch sizes did not fit{' with checkpointing' if kept else ''}")
    return problems


def lines_of(found: BatchSizes) -> list[str]:
    rows = [list(row) for row in batch_rows(found)]
    table = bench.table(HEADERS, rows)
    return [heading(found), *table.splitlines(), *(line.text for line in batch_lines(found, 4))]


def keeper(subject: str, on_point: OnPoint) -> Callable[[BatchPoint], None]:
    """What is told each batch size of a model or script: prints it, and hands it on."""

    def keep(point: BatchPoint) -> None:
        print(f"{subject}, batches of {point.batch_size}: {point.failure or point.samples_per_s}", flush=True)
        on_point(subject, to_dict(point))

    return keep


def raised(stop: KeyboardInterrupt) -> None:
    raise stop
