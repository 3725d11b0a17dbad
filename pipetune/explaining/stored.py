"""The explanation in a stored run."""

from __future__ import annotations

from pipetune.errors import UsageError
from pipetune.records.explanation import Explanation
from pipetune.records.sweep import from_dict
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
            return from_dict(Explanation, stored)
    except TypeError as error:
        raise UsageError(
            f"{run.path}: result.json is damaged ({error})", hint="pipetune explain measures it anew"
        ) from error
    raise UsageError(f"{run.path} has no result: too little was measured", hint="pipetune explain measures it anew")
