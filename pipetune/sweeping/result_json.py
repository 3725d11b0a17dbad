"""The JSON of a sweep: what ``--json`` prints."""

from __future__ import annotations

from typing import Any

from pipetune.diagnosis.candidate import diagnosis_of
from pipetune.records.sweep import SCHEMA, Outcome, to_dict
from pipetune.sweeping.result import SweepResult, deviation_of


def to_json(result: SweepResult) -> dict[str, Any]:
    """The object that ``--json`` prints."""
    ceiling = result.ceiling.measurement if result.ceiling else None
    return {
        "schema": SCHEMA,
        "status": result.status,
        "message": result.message,
        "target": result.goal.target,
        "target_metric": result.goal.metric,
        "ceiling_samples_per_s": ceiling.samples_per_s if ceiling else None,
        "ceiling_ci95": list(ceiling.ci95) if ceiling else None,
        "ceiling": _outcome(result.ceiling, result.usable_cores),
        "accelerator": to_dict(result.accelerator),
        "dataset": result.dataset,
        "workload": result.workload,
        "host": result.host,
        "baseline": _outcome(result.baseline, result.usable_cores),
        "recommended": _outcome(result.recommended, result.usable_cores),
        "speedup": result.speedup,
        "speedup_ci95": list(result.speedup_ci95) if result.speedup_ci95 else None,
        "outcomes": [_outcome(outcome, result.usable_cores) for outcome in result.outcomes],
        "does_not_fit": [
            {"key": candidate.key, "candidate": to_dict(candidate), "failure": to_dict(failure)}
            for candidate, failure in result.does_not_fit
        ],
        "ties": list(result.ties),
        "doubts": list(result.doubts),
        "complete": result.complete,
        "left_out": [to_dict(group) for group in result.left_out],
        "reused": result.reused,
        "seconds": result.seconds,
    }


def _outcome(outcome: Outcome | None, usable_cores: float) -> dict[str, Any] | None:
    """One flat object per candidate: what it is, what was measured, or why it was not."""
    if outcome is None:
        return None
    row: dict[str, Any] = {
        "key": outcome.candidate.key,
        "candidate": to_dict(outcome.candidate),
        "role": outcome.role,
        "attempt": outcome.attempt,
        "started_unix_s": outcome.started_unix_s,
        "wall_s": outcome.wall_s,
        "block": outcome.block,
        "why": outcome.why,
        "deviation": deviation_of(outcome.candidate),
    }
    if outcome.failure is not None:
        return {**row, "failure": to_dict(outcome.failure)}
    diagnosis = diagnosis_of(outcome, usable_cores)
    measured = {} if outcome.measurement is None else to_dict(outcome.measurement)
    return {**row, **measured, "diagnosis": None if diagnosis is None else to_dict(diagnosis)}
