"""The answers in a stored run of ``pipetune whatif --check``."""

from __future__ import annotations

import math

from pipetune.errors import UsageError
from pipetune.records.prediction import KINDS, Prediction, WhatIf
from pipetune.records.sweep import from_dict
from pipetune.runs.run import WHATIF, Run


def whatif_of(run: Run) -> WhatIf:
    """What was answered and checked.

    Raises:
        UsageError: the run is of another kind, or it was killed before there was a result.
    """
    if run.kind != WHATIF:
        raise UsageError(
            f"{run.path} is a run of pipetune {run.kind}, not of pipetune whatif", hint="pipetune report shows both"
        )
    stored = run.result.get("whatif")
    try:
        if isinstance(stored, dict):
            found = from_dict(WhatIf, stored)
            _check(found)
            return found
    except TypeError as error:
        raise UsageError(
            f"{run.path}: result.json is damaged ({error})", hint="pipetune whatif --check measures it anew"
        ) from error
    raise UsageError(f"{run.path} has no result: it was killed", hint="pipetune whatif --check measures it anew")


def _check(found: WhatIf) -> None:
    """Refuse what no answer has come to, which a report could not show.

    Raises:
        TypeError: says what.
    """
    rates = [found.measured_samples_per_s, *_rates(found.now)]
    for one in found.answers:
        rates += [] if one.prediction is None else _rates(one.prediction)
        if one.check is not None:
            rates += [one.check.samples_per_s, *_rates(one.check.prediction)]
    for reach in found.reach:
        rates += _rates(reach.prediction)
    for rate in rates:
        if not 0 < rate < math.inf:
            raise TypeError(f"samples_per_s is {rate}")


def _rates(prediction: Prediction) -> list[float]:
    if prediction.kind not in KINDS:
        raise TypeError(f"there is no kind {prediction.kind}")
    return [prediction.samples_per_s, prediction.demand_samples_per_s]
