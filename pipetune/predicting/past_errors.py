"""How wrong predictions have been: the width of the interval of the next one. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pipetune.records.prediction import EXTRAPOLATED, INTERPOLATED, ONE_FACTOR

#: The 90 % quantile of |log(predicted / measured)| of questions that the loader limits, by kind, and how many errors of
#: a run's own it counts for. Of 36 and 66 questions about seven loaders on a noisy day, what the machine had changed
#: allowed for: 11 % where one thing changes by up to twice, and 11 % beyond. On a quiet day
#: (``whatif_error-2core-epyc-2026-11-27.json``) 5 and 10 %, so that 96 % were inside of 12 %; of 22 answers that were
#: measured once each on a noisy one, 17 and 24 %. Candidates between measured ones are what stored grids
#: (``search_grids-*.json``) show: on the quietest machine 12 %, on others up to 36 %, of which their own noise is the
#: larger part.
PAST: dict[str, tuple[float, int]] = {INTERPOLATED: (0.12, 10), ONE_FACTOR: (0.12, 10), EXTRAPOLATED: (0.12, 10)}
#: Share of predictions that the interval contains.
COVERED = 0.9
#: Fewer errors than this say nothing of their 90 % quantile.
_ENOUGH = 5
#: Relative uncertainty of what an accelerator takes: given as a rate (what the timing of steps leaves); measured here;
#: published by others for another machine.
GIVEN_DEVICE, MEASURED_DEVICE, PUBLISHED_DEVICE = 0.01, 0.02, 0.15


def usual_error(kind: str, own: Sequence[float] = ()) -> float:
    """The 90 % quantile of |log error|: of the benchmark's questions, and of this run's own where there are enough.

    Args:
        own: log errors of the run's own predictions of this kind.
    """
    known, count = PAST[kind]
    if len(own) < _ENOUGH:
        return known
    ordered = sorted(map(abs, own))
    here = ordered[min(len(ordered) - 1, math.ceil(COVERED * len(ordered)) - 1)]
    return math.sqrt((count * known**2 + len(own) * here**2) / (count + len(own)))
