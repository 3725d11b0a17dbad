"""The explanation in a stored run, and the workload of a sweep or an explanation."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from pipetune.errors import UsageError
from pipetune.records.explanation import STAGES, Explanation
from pipetune.records.sweep import Workload, from_dict
from pipetune.runs.run import EXPLAIN, Run


def explanation_of(run: Run) -> Explanation:
    """What an explanation came to.

    Raises:
        UsageError: the run is no explanation, or it was stopped before there was a result.
    """
    if run.kind != EXPLAIN:
        raise UsageError(
            f"{run.path} is a run of pipetune {run.kind}, not of pipetune explain", hint="pipetune report shows both"
        )
    stored = run.result.get("explanation")
    try:
        if isinstance(stored, dict):
            found = from_dict(Explanation, stored)
            _check(found)
            return found
    except TypeError as error:
        raise UsageError(
            f"{run.path}: result.json is damaged ({error})", hint="pipetune explain measures it anew"
        ) from error
    raise UsageError(f"{run.path} has no result: too little was measured", hint="pipetune explain measures it anew")


def _check(found: Explanation) -> None:
    """Refuse what no measurement has come to, which a report could not show.

    Raises:
        TypeError: says what.
    """
    if not found.stages:
        raise TypeError("it has no stage")
    unknown = [stage for cost in found.stages for stage in cost.stages if stage not in STAGES]
    if unknown:
        raise TypeError(f"there is no stage {unknown[0]}")
    for rate in [*(cost.samples_per_s for cost in found.stages), *(part.samples_per_s for part in found.parts)]:
        if not 0 < rate < math.inf:
            raise TypeError(f"samples_per_s is {rate}")
    values = [value for cost in found.stages for value in (cost.cpu_s_per_1000_samples, *cost.ci95, *cost.rate_ci95)]
    if not all(map(math.isfinite, values)):
        raise TypeError("a stage's cost is no number")


def workload_of(run: Run) -> Workload:
    """As it was measured; its files are where the folder is now.

    Raises:
        UsageError: ``run.json`` is damaged.
    """
    try:
        workload = from_dict(Workload, run.info["workload"])
    except (KeyError, TypeError) as error:
        raise UsageError(f"{run.path}: run.json is missing or damaged ({error})", hint="measure it anew") from error
    loader = workload.loader_path
    return replace(
        workload, index_path=str((run.path / "index.json").resolve()),
        loader_path=None if loader is None else str((run.path / Path(loader).name).resolve()),
    )  # fmt: skip
