"""The smallest sufficient worker count of one backend, found from its probe in a few measurements. Pure.

Upwards: the count that would be sufficient if the rate grew in proportion, again until the target is met or more
workers no longer gain. Downwards: the middle of the counts between too few and sufficient, as in a binary search.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from pipetune.records.sweep import Measurement
from pipetune.registry import loader_for
from pipetune.search.effort import is_thorough, leaves_cores
from pipetune.search.pooled import achieved, meets
from pipetune.search.pruning import cannot_win
from pipetune.search.state import Chosen, State, Step
from pipetune.search.tuning import KNEE_GAIN

#: A training process that loads for itself is faster than with one worker process, which hands batches over, by up to
#: this factor: 1.57 at most over 46 pairs of the seven grids in benchmarks/results/search_grids-*.json (2 cores).
ZERO_OVER_ONE = 1.6

#: Workers take all cores where a worker more would find no more than this share of a core: chosen, so that an estimate
#: which is off by a tenth does not add a worker on the few cores where it would slow down the others.
_ALMOST = 0.25

#: Worker count -> measurement; ``None``: it failed.
Points = Mapping[int, Measurement | None]


def next_count(state: State, backend: str, chosen: Chosen) -> Step | None:
    """A backend's next worker count to measure; ``None``: the smallest sufficient one is known, or it cannot win."""
    counts, points = state.space.workers_of(backend), state.points(backend, chosen)
    measured = {count: m for count, m in points.items() if m is not None}
    enough = [count for count, m in measured.items() if meets(m, state.goal)]
    if cannot_win(state, backend, measured) is not None:
        return None
    if enough:
        count = _fewer(counts, points, min(enough))
        if count is None and _zero_may_suffice(state, backend, chosen, points):
            count = 0
        why = f"num_workers={min(enough)} is sufficient, fewer may be"
    else:
        count = _more(counts, points, measured, state)
        why = f"num_workers={max(measured, default=0)} is not sufficient"
        if count is None and _leads(state, backend):
            count, why = _next_to_fastest(counts, points, measured, state), "next to the fastest worker count"
    if count is None:
        return None
    candidate = state.at(backend, count, chosen)
    # With these settings it may not fit on this machine, or be another count's candidate.
    return (candidate, why) if state.is_open(candidate) else None


def _fewer(counts: tuple[int, ...], points: Points, enough: int) -> int | None:
    """The middle of the worker counts below the smallest sufficient one and above the largest insufficient one."""
    below = [count for count in counts if count < enough]
    too_few = max((count for count in below if count in points), default=-1)
    open_counts = [count for count in below if count > too_few]
    return open_counts[len(open_counts) // 2] if open_counts else None


def _zero_may_suffice(state: State, backend: str, chosen: Chosen, points: Points) -> bool:
    """Whether the training process may be fast enough alone: it hands no batches over, as one worker process does."""
    one = points.get(1)
    if one is None or 0 in points or 0 not in state.space.workers_of(backend):
        return False
    process = loader_for(state.at(backend, 1, chosen)).worker_kind == "process"
    return process and (achieved(one, state.goal) or 0.0) > state.goal.target / ZERO_OVER_ONE


def _more(counts: tuple[int, ...], points: Points, measured: Mapping[int, Measurement], state: State) -> int | None:
    """The smallest worker count that is sufficient if the rate grows in proportion; ``None``: more no longer gain.

    Unless the search is thorough, no more workers at once than the processor has cores for, and none more where it has
    no core left: they would not be faster, and take the longer to warm up.
    """
    largest = max(points)
    above = [count for count in counts if count > largest]
    if not above or not measured or points[largest] is None:
        return None
    # One worker process is often no faster than none, which says nothing about the second one.
    tried = sorted(count for count in measured if count >= 1) or [0]
    best = measured[tried[-1]]
    if len(tried) > 1 and best.samples_per_s < (1 + KNEE_GAIN) * measured[tried[-2]].samples_per_s:
        return None
    share = achieved(best, state.goal) or 0
    needed = math.ceil(max(1, tried[-1]) * state.goal.target / share) if share > 0 else above[-1]
    if not is_thorough(state.goal):
        if tried[-1] and not leaves_cores(state, best):
            return None
        needed = min(needed, _for_all_cores(state, tried[-1], best) or needed)
    return next((count for count in above if count >= needed), above[-1])


def _for_all_cores(state: State, count: int, measurement: Measurement) -> int | None:
    """The worker count that takes all usable cores if each takes what it does now; ``None``: not known."""
    if not count or not measurement.cores_used or state.space.usable_cores is None:
        return None
    usable = state.space.usable_cores - (measurement.step_cores or 0.0)
    return max(count + 1, math.ceil(count * usable / measurement.cores_used - _ALMOST))


def _leads(state: State, backend: str) -> bool:
    """Whether the fastest of all measured candidates has this backend."""
    rates = {key: o.measurement.samples_per_s for key, o in state.outcomes.items() if o.measurement}
    return bool(rates) and state.outcomes[max(rates, key=lambda key: rates[key])].candidate.backend == backend


def _next_to_fastest(
    counts: tuple[int, ...], points: Points, measured: Mapping[int, Measurement], state: State
) -> int | None:
    """An unmeasured count next to the fastest one: the rate may peak between two measured counts."""
    if not measured:
        return None
    fastest = max(measured, key=lambda count: measured[count].samples_per_s)
    place = counts.index(fastest)
    more = counts[place + 1 : place + 2]
    if not is_thorough(state.goal) and not leaves_cores(state, measured[fastest]):
        more = ()
    neighbours = counts[max(0, place - 1) : place] + more
    return next((count for count in neighbours if count >= 1 and count not in points), None)
