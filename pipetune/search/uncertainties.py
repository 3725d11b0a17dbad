"""Why another candidate than the recommended one may be the right one, in sentences. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import fmean

from pipetune.candidates.describe import describe
from pipetune.candidates.space import Space
from pipetune.records.sweep import Goal, Outcome
from pipetune.search.costs import Pair, is_cheaper
from pipetune.search.pooled import (
    CHANGED_SPEED,
    achieved_ci95,
    at_present_speed,
    felt_change,
    is_clearly_sufficient,
    is_inconclusive,
    meets,
    noise_of,
    present_speed,
    speed_of,
)
from pipetune.stats.noise import difference_by_chance

#: Minimum number of cores that other processes use for a warning; the background load of a shared machine is less.
OTHER_LOAD = 0.3
#: Largest share by which the recommended candidate's first rate may differ from its rate in blocks. A larger difference
#: shows that the machine changed in a way that the fixed decode loop does not see.
OFF_FIRST = 0.15


def uncertainties(
    best: Pair, pairs: Sequence[Pair], outcomes: Sequence[Outcome], goal: Goal, space: Space
) -> Iterator[str]:
    """One sentence per reason to doubt the recommendation.

    Args:
        best: the recommended candidate.
        pairs: all candidates that may be recommended, with what is known of each.
        outcomes: all measurements of the sweep.
    """
    outcome, measurement = best
    again = [o for o in at_present_speed(outcomes) if o.candidate == outcome.candidate and o.role != "ceiling"]
    noise = noise_of(outcomes)
    yield from _about_the_target(best, pairs, goal, space, noise)
    # Its own repetitions must not excuse how much they differ.
    yield from _about_its_first_rate(again, noise_of([o for o in outcomes if o.candidate != outcome.candidate]))
    if goal.most_memory_bytes is not None and measurement.pss_bytes is None:
        yield "its memory could not be read, so --max-ram is not checked"
    failed = [o.failure.kind for o in again if o.failure]
    if failed:
        yield f"it failed in {len(failed)} of {len(again)} measurements ({failed[-1]})"
    yield from about_other_processes(outcomes)
    now = present_speed(outcomes)
    if now is not None and abs(felt_change(measurement, now)) > CHANGED_SPEED:
        change = now / speed_of(measurement) - 1
        yield f"the machine's speed has changed by {100 * change:+.0f} % since it was measured"


def _about_the_target(best: Pair, pairs: Sequence[Pair], goal: Goal, space: Space, noise: float) -> Iterator[str]:
    measurement = best[1]
    low, high = achieved_ci95(measurement, goal) or (math.nan, math.nan)
    what = "GPU utilisation" if goal.metric == "nvml" else "goodput"
    if is_inconclusive(measurement, goal) and not is_clearly_sufficient(measurement, goal, space):
        may = "may miss" if meets(measurement, goal) else "may yet reach"
        yield f"its {what} lies between {low:.2f} and {min(1.0, high):.2f}: it {may} the target of {goal.target:g}"
    for outcome, m in pairs if meets(measurement, goal) else ():
        if not meets(m, goal) and is_inconclusive(m, goal) and is_cheaper((outcome, m), best, goal, space, noise):
            yield f"{describe(outcome.candidate)} is cheaper and may reach the target, too"


def _about_its_first_rate(again: Sequence[Outcome], noise: float) -> Iterator[str]:
    first = [o.measurement.samples_per_s for o in again if o.measurement and not o.block and o.role != "baseline"]
    in_blocks = [o.measurement.samples_per_s for o in again if o.measurement and o.block]
    if first and in_blocks and abs(fmean(in_blocks) / first[-1] - 1) > max(OFF_FIRST, difference_by_chance(noise)):
        yield (
            f"it delivered {first[-1]:.0f}/s when first measured and {fmean(in_blocks):.0f}/s side by side with others,"
            " so the machine's speed may have been another one in between"
        )


def about_other_processes(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """During how many of these measurements other processes took cores."""
    disturbed = [o.measurement for o in outcomes if o.measurement and (o.measurement.other_cores or 0) >= OTHER_LOAD]
    if disturbed:
        worst = max(disturbed, key=lambda m: m.other_cores or 0)
        yield (
            f"during {len(disturbed)} of {len(outcomes)} measurements other processes used {OTHER_LOAD:g} cores or "
            f"more, up to {worst.other_cores:.1f} ({worst.other_process})"
        )
