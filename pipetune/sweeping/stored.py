"""The result of a stored sweep, computed anew from its outcomes: a killed run has one, too."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from pipetune.candidates.space import Space
from pipetune.errors import UsageError
from pipetune.records.audit import Audit
from pipetune.records.redact import redact_words
from pipetune.records.script import ScriptSummary
from pipetune.records.summaries import AS_IT_IS, DatasetSummary, WorkloadSummary
from pipetune.records.sweep import AcceleratorSpec, Candidate, Failure, Goal, from_dict
from pipetune.runs.run import SWEEP, Run
from pipetune.sweeping.result import SweepResult, conclude
from pipetune.usercode import make_loader

#: How far a run came that has no result of its own.
_STOPPED = ("interrupted", "failed")
#: Combinations of settings in the largest space; a sweep of everything has 200,000.
_MOST_COMBINATIONS = 5_000_000


def sweep_result(run: Run) -> SweepResult:
    """What the outcomes of a run amount to, with everything that the run wrote about itself.

    Raises:
        UsageError: it is not a sweep, or ``run.json`` is missing or damaged.
    """
    if run.kind != SWEEP:
        raise UsageError(
            f"{run.path} is a run of pipetune {run.kind}, not of pipetune sweep", hint="pipetune report shows both"
        )
    stored = run.result
    try:
        asked = run.info["workload"]
        accelerator = from_dict(AcceleratorSpec, stored.get("accelerator") or asked["accelerator"])
        workload = _workload_of(run)
        does_not_fit = tuple(
            (from_dict(Candidate, row["candidate"]), from_dict(Failure, row["failure"]))
            for row in stored.get("does_not_fit", run.info.get("does_not_fit")) or ()
        )
        # What was short at the start may have been there later.
        tried = {outcome.candidate for outcome in run.outcomes}
        does_not_fit = tuple(pair for pair in does_not_fit if pair[0] not in tried)
        space = from_dict(Space, run.info["space"])
        _require_usual_size(space)
        return conclude(
            run.outcomes,
            goal=from_dict(Goal, run.info["goal"]),
            space=replace(space, excluded=frozenset(candidate for candidate, _ in does_not_fit)),
            accelerator=accelerator,
            dataset=_dataset_of(stored, str(asked["dataset"])),
            workload=workload,
            host=run.info.get("host") or {},
            usable_cores=run.usable_cores,
            seconds=float(stored.get("seconds") or sum(outcome.wall_s for outcome in run.outcomes)),
            reused=int(stored.get("reused") or 0),
            does_not_fit=does_not_fit,
            grid=bool((run.info.get("options") or {}).get("grid")),
            stopped=_stopped(stored),
            message=stored.get("message"),
            script=_script_of(run),
            # An earlier version's search may have ended where this one would continue.
            complete=stored["complete"] if isinstance(stored.get("complete"), bool) else None,
        )
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise UsageError(
            f"{run.path}: run.json is missing or damaged ({type(error).__name__}: {error})",
            hint="pipetune.load still reads its outcomes and timelines",
        ) from error


def _dataset_of(stored: dict[str, Any], name: str) -> DatasetSummary:
    """The images as the run has described them; of one that did not come to its end the name alone."""
    dataset: Any = {"name": name, **(stored.get("dataset") or {})}
    if isinstance(dataset.get("audit"), dict):
        dataset["audit"] = from_dict(Audit, dataset["audit"])
    summary: DatasetSummary = dataset
    return summary


def _require_usual_size(space: Space) -> None:
    """Refuse a space whose grid would fill the memory.

    Raises:
        ValueError: it has more combinations than anybody has asked for.
    """
    sizes = (
        len(space.backends),
        len(space.workers),
        len(space.prefetch),
        *(len(values) for _, values in space.settings),
    )
    if math.prod(sizes) > _MOST_COMBINATIONS:
        raise ValueError(f"its space has {math.prod(sizes):,} combinations")


def _workload_of(run: Run) -> WorkloadSummary:
    """As it was asked for, and as the children found it where the run came to its end.

    Raises:
        KeyError: it lacks what every report names.
    """
    asked = {**run.info["workload"], "batch_size": run.info["space"].get("batch_size")}
    names = {"image_size": "image_size_px"}
    kept = (
        "model",
        "batch_size",
        "image_size",
        "precision",
        "seconds",
        "cache",
        "seed",
        "ranks",
        "sync",
        "bind",
        "compiled",
        "augment",
    )
    known = {names.get(name, name): asked[name] for name in kept if asked.get(name) is not None}
    found: Any = {**known, **(run.result.get("workload") or {})}
    if str(asked.get("dataset")).startswith(make_loader.SCHEME):
        found |= {"image_size_px": 0, "cache": AS_IT_IS}
    elif "script" in run.info:  # earlier versions stored the command's defaults
        found |= {name: value for name, value in known.items() if name in ("model", "image_size_px", "cache")}
    for name in ("model", "image_size_px"):
        if name not in found:
            raise KeyError(name)
    workload: WorkloadSummary = found
    return workload


def _script_of(run: Run) -> ScriptSummary | None:
    found = run.result.get("script") or run.info.get("script")
    if not found:
        return None
    summary = from_dict(ScriptSummary, found)
    return replace(summary, command=redact_words(summary.command))  # earlier versions stored it as it was


def _stopped(stored: dict[str, Any]) -> str | None:
    if not stored:
        return "interrupted"
    status = stored.get("status")
    return status if status in _STOPPED else None
