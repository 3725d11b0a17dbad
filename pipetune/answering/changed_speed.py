"""By how much a machine is faster or slower than it was in a run, from what is measured beside the answers. Pure.

Machines in clouds change their speed by several percent from minute to minute, which no prediction can know. Two things
show it. A fixed loop of decoding runs beside each measurement, but rates change more than its speed does: about 2.5
times as much (:mod:`pipetune.stats.noise`), because a loader depends on memory and on the scheduler, too. The loader as
the run had it, measured again between the answers, shows the whole of it, but each of its rates has its own chance in
it. So the loop decides about each answer, and what the loader has changed beyond its loop comes on top, the more of it,
the more often it was measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from pipetune.answering.base import Base, speed_of
from pipetune.predicting.observed import LOADER_LIMITED
from pipetune.records.sweep import Outcome

#: What the configuration of the run itself is called among what is measured.
AS_MEASURED = "as it was measured"
#: A machine that seems to have changed by more is another one, or something else is wrong.
_MOST_FASTER = 1.5
#: So many measurements of the run's own loader tell as much of the change as is known without any. On a noisy day seven
#: loaders of ``benchmarks/measuring/whatif_error.py`` were 8 % apart in the median when they were measured again, a
#: standard deviation of about 7 % beyond their loops, where single rates scattered by about 5 %; on a quiet one 1.5 %.
_WORTH = 0.5


def machine_factor(base: Base, outcomes: Sequence[Outcome], part: str) -> float | None:
    """By which factor the machine is faster beside some measurements than in the run; ``None``: it is not known.

    Args:
        outcomes: everything that was measured.
        part: of these measurements.
    """
    now = speed_of(outcome for outcome in outcomes if outcome.part == part)
    if now is None or not base.cpu_speed:
        return None
    again = [change for one in outcomes if (change := _beyond_the_loop(base, one)) is not None]
    share = len(again) / (len(again) + _WORTH)
    factor = now / base.cpu_speed * math.exp(share * fmean(again) if again else 0.0)
    return min(_MOST_FASTER, max(1 / _MOST_FASTER, factor))


def _beyond_the_loop(base: Base, outcome: Outcome) -> float | None:
    """Logarithm of what the run's own loader has changed beyond its loop; ``None``: this does not tell."""
    found = outcome.measurement
    if outcome.part != AS_MEASURED or found is None or not found.machine_cpu_speed or not base.cpu_speed:
        return None
    # What storage or an accelerator sets the pace of is no faster on a faster machine.
    if base.cold or max(base.measured_samples_per_s, found.samples_per_s) > LOADER_LIMITED * _demand(base):
        return None
    loop = found.machine_cpu_speed / base.cpu_speed
    return math.log(found.samples_per_s / base.measured_samples_per_s / loop)


def _demand(base: Base) -> float:
    return base.ranks * base.costs.demand_per_s
