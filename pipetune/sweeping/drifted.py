"""Whether the machine ran at another speed while a candidate was measured. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from pipetune.records.sweep import Outcome
from pipetune.search.pooled import NEWEST
from pipetune.stats.drift import DRIFT_LIMIT, relative_change
from pipetune.stats.noise import OFF_USUAL_LIMIT, felt_frac, lost_to_loader, off_usual_speed

#: Below this share of time lost to the loader it had no part in the rate.
_FED = 0.01


def drifted(outcomes: Sequence[Outcome]) -> bool:
    """The machine ran at another speed during the last outcome than before, after, or during those before it.

    As far as its rate follows that: what mostly waits does not.
    """
    last = outcomes[-1].measurement
    if last is None:
        return False
    if lost_to_loader(last) < _FED:
        return False  # the accelerator set the pace: a slower machine was still fast enough
    felt = felt_frac(last)
    if felt * abs(relative_change(last.machine_speed_before, last.machine_speed_after)) > DRIFT_LIMIT:
        return True
    # With the newest ones: a machine that stays as slow as it has become is not waited for.
    newest = [outcome.measurement for outcome in outcomes if outcome.measurement][-1 - NEWEST :]
    return felt * abs(off_usual_speed(last, newest)) > OFF_USUAL_LIMIT
