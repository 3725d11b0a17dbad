"""Candidates of stored grids (``search_grids-*.json``), each predicted from others of its grid, as a sweep does."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from benchmarks import bench
from pipetune.predicting.candidates import predict_candidate
from pipetune.records.sweep import Candidate, Outcome, from_dict


def stored_grids() -> dict[str, Any]:
    """Candidates of stored grids, each predicted from others that come before it in a random order."""
    rows, numbers = [], {}
    for file in sorted(bench.RESULTS.glob("search_grids-*.json")):
        for name, grid in json.loads(file.read_text())["grids"].items():
            errors, inside = grid_errors(grid)
            rows.append([name, str(len(errors)), f"{median(errors):.1%}", f"{quantile90(errors):.1%}", f"{inside:.0%}"])
            numbers[name] = {"count": len(errors), "median": median(errors), "quantile90": quantile90(errors),
                             "inside": inside}  # fmt: skip
    return {"rows": rows, "numbers": numbers}


def grid_errors(grid: dict[str, Any], seed: int = 0) -> tuple[list[float], float]:
    """Errors of the predictions of a grid's candidates that the loader limits, and the share inside of intervals."""
    outcomes = [stored_outcome(row, grid["ceiling_samples_per_s"]) for row in grid["candidates"]]
    order = random.Random(seed).sample(outcomes, len(outcomes))
    errors, inside = [], []
    done: list[Outcome] = []
    for outcome in order:
        prediction = predict_candidate(outcome.candidate, done, cores=float(grid["cores"]))
        done.append(replace(outcome, predicted=prediction))  # so the run knows its own errors
        m = outcome.measurement
        if prediction is None or m is None or m.samples_per_s > 0.93 * grid["ceiling_samples_per_s"]:
            continue
        errors.append(abs(math.log(prediction.samples_per_s / m.samples_per_s)))
        inside.append(prediction.interval90[0] <= m.samples_per_s <= prediction.interval90[1])
    return errors, sum(inside) / len(inside)


def stored_outcome(row: dict[str, Any], ceiling: float) -> Outcome:
    """A candidate of a stored grid as an outcome."""
    from tests.fakes import measurement

    rate, cores = median(row["samples_per_s"]), median(row["cores_used"])
    return Outcome(
        candidate=from_dict(Candidate, row["candidate"]), role="candidate", attempt=1, started_unix_s=0.0, wall_s=1.0,
        measurement=measurement(samples_per_s=rate, goodput=min(1.0, rate / ceiling), cores_used=cores,
                                cpu_s_per_1000_samples=1000 * cores / rate),
    )  # fmt: skip


def quantile90(values: Sequence[float]) -> float:
    """The 90 % quantile."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(0.9 * len(ordered)) - 1)]
