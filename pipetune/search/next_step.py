"""The next step of the search, from what is known of the candidates. Pure.

After the probes (see :mod:`pipetune.search.probes`), backend by backend from the fastest probe down, the worker count
that should be just enough, corrected upwards until the target is met or more workers stop paying, and downwards until
fewer no longer suffice; then what is near the best one (see :mod:`pipetune.search.refine`). A backend is left out when
another one's probe is clearly cheaper, or when even linear scaling could not make it win; where nothing suffices though
cores are idle, those with threads of their own come back.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping

from pipetune.candidates.space import Space
from pipetune.records.sweep import Goal, Measurement, Outcome
from pipetune.registry import find_backend, loader_for, native_workers
from pipetune.search.choice import cheapest, cores_decide, cores_slack
from pipetune.search.pooled import achieved, baseline, meets
from pipetune.search.probes import KNEE_GAIN, Seen, Settings, Step, next_probe, outdone
from pipetune.search.refine import next_refinement

#: A backend is left out when its best conceivable result misses by more than this share, and by more than two probes of
#: one candidate differ by (one standard deviation).
PRUNE_MARGIN = 0.05
#: A training process that loads for itself is up to so much faster than with one worker process, which hands batches
#: over: 1.57 times at most over 46 pairs of the seven grids in benchmarks/results/search_grids-*.json (2 cores).
NONE_TO_ONE = 1.6
#: The CPU has room left where this share of the usable cores or more is not in use: chosen, so that repetitions, which
#: scatter by less than a tenth, do not decide it.
SPARE = 0.2


def next_step(seen: Seen, seed: int) -> Step | None:
    """``None`` when the search is done."""
    step, settings = next_probe(seen, seed)
    if step is not None or not settings:
        return step
    best = cheapest(seen.known.values(), seen.goal, seen.space)
    for backend in seen.by_probe(settings):
        # The best one's stays in, should only idle cores have brought it back.
        stays = best is not None and best.candidate.backend == backend and best.candidate.num_workers > 1
        if (stays or outdone(seen, backend, settings) is None) and (step := _climb(seen, backend, settings[backend])):
            return step
    return next_refinement(seen, settings) or _spare_cores(seen, settings)


def next_of_grid(space: Space, known: Mapping[str, Outcome], seed: int) -> Step | None:
    """The same for a sweep of everything, in random order."""
    everything = list(dict.fromkeys((baseline(space), *space.grid())))
    random.Random(seed).shuffle(everything)
    return next(((candidate, "all of them") for candidate in everything if candidate.key not in known), None)


def most_candidates(space: Space, *, grid: bool) -> int:
    """As many as a sweep measures at most before it compares the best ones closely, the baseline included."""
    everything = len({baseline(space), *space.grid()})
    if grid:
        return everything
    settings = sum(len(values) for _, values in space.settings)
    probes = 2 * len(space.backends) + settings
    counts = [len(space.workers_of(backend)) for backend in space.backends]
    depths = 2 * (len(space.prefetch) - 1)
    # What is unsettled with and without, then its own worker counts; where nothing suffices, what is beside the best.
    near = max(settings + 5, 2 + max(counts, default=0)) if settings else 2
    return min(everything, 1 + probes + sum(counts) + depths + near + len(space.backends))


def _climb(seen: Seen, backend: str, chosen: Settings) -> Step | None:
    """The next worker count of a backend."""
    counts, points = seen.space.workers_of(backend), seen.points(backend, chosen)
    measured = {count: m for count, m in points.items() if m is not None}
    enough = [count for count, m in measured.items() if meets(m, seen.goal)]
    if cannot_win(seen, backend, measured) is not None:
        return None
    if enough:
        count = _fewer(counts, points, min(enough))
        if count is None and _none_may_do(seen, backend, chosen, points):
            count = 0
        why = f"num_workers={min(enough)} suffices: perhaps fewer do"
    else:
        count = _more(counts, points, measured, seen.goal)
        why = f"num_workers={max(measured, default=0)} does not suffice"
        if count is None and _leads(seen, backend):
            count, why = _beside_the_best(counts, points, measured), "beside the fastest worker count"
    if count is None:
        return None
    candidate = seen.at(backend, count, chosen)
    # What does not fit, or is another count's candidate under these settings, is no step.
    return (candidate, why) if seen.is_open(candidate) else None


def _fewer(counts: tuple[int, ...], points: Mapping[int, Measurement | None], enough: int) -> int | None:
    """The middle of the worker counts below the least that suffices and above the most that does not."""
    below = [count for count in counts if count < enough]
    too_few = max((count for count in below if count in points), default=-1)
    open_counts = [count for count in below if count > too_few]
    return open_counts[len(open_counts) // 2] if open_counts else None


def _none_may_do(seen: Seen, backend: str, chosen: Settings, points: Mapping[int, Measurement | None]) -> bool:
    """One worker process nearly suffices: the training process by itself, which hands no batches over, may."""
    one = points.get(1)
    if one is None or 0 in points or 0 not in seen.space.workers_of(backend):
        return False
    share = achieved(one, seen.goal) or 0.0
    return loader_for(seen.at(backend, 1, chosen)).worker_kind == "process" and share > seen.goal.target / NONE_TO_ONE


def _more(
    counts: tuple[int, ...], points: Mapping[int, Measurement | None], measured: Mapping[int, Measurement], goal: Goal
) -> int | None:
    """The least worker count that should suffice if the rate grows in proportion, or the next one up."""
    most = max(points)
    above = [count for count in counts if count > most]
    if not above or not measured or points[most] is None:
        return None
    # One worker process is often no faster than none, which says nothing about the second one.
    tried = sorted(count for count in measured if count >= 1) or [0]
    best = measured[tried[-1]]
    if len(tried) > 1 and best.samples_per_s < (1 + KNEE_GAIN) * measured[tried[-2]].samples_per_s:
        return None
    share = achieved(best, goal) or 0
    needed = math.ceil(max(1, tried[-1]) * goal.target / share) if share > 0 else above[-1]
    return next((count for count in above if count >= needed), above[-1])


def _leads(seen: Seen, backend: str) -> bool:
    """Of all that was measured, the fastest has this backend."""
    rates = {key: o.measurement.samples_per_s for key, o in seen.known.items() if o.measurement}
    return bool(rates) and seen.known[max(rates, key=lambda key: rates[key])].candidate.backend == backend


def _beside_the_best(
    counts: tuple[int, ...], points: Mapping[int, Measurement | None], measured: Mapping[int, Measurement]
) -> int | None:
    """A count next to the fastest one that was passed over: the rate may peak between two that were tried."""
    if not measured:
        return None
    fastest = max(measured, key=lambda count: measured[count].samples_per_s)
    place = counts.index(fastest)
    beside = counts[max(0, place - 1) : place] + counts[place + 1 : place + 2]
    return next((count for count in beside if count >= 1 and count not in points), None)


def cannot_win(seen: Seen, backend: str, measured: Mapping[int, Measurement]) -> str | None:
    """Why not: another backend meets the goal, and this one could not for less, even under linear scaling."""
    goal, best = seen.goal, cheapest(seen.known.values(), seen.goal, seen.space)
    if best is None or best.measurement is None or not meets(best.measurement, goal) or not measured:
        return None
    if best.candidate.backend == backend:
        return None
    # Without workers, loader and step take turns: nothing follows from that for workers.
    probe_count, probe = min(((c, m) for c, m in measured.items() if c), default=min(measured.items()))
    share = achieved(probe, goal)
    if share is None:
        return None
    conceivable = share * max(seen.space.workers_of(backend)) / max(1, probe_count)
    if conceivable < goal.target * (1 - max(PRUNE_MARGIN, math.sqrt(2) * seen.noise)):
        most = max(seen.space.workers_of(backend))
        return f"even {most} of its workers would reach {100 * conceivable:.0f} % at most"
    per_sample, cores = probe.cpu_s_per_1000_samples, best.measurement.cores_used
    if per_sample is None or cores is None:
        return None
    if not cores_decide(best.candidate, seen.probe(backend, {}), goal, seen.space):
        return None
    # At the goal it would use this many cores, however many workers share them.
    at_goal = per_sample / 1000 * probe.samples_per_s * goal.target / max(share, 1e-9)
    if at_goal - cores_slack(at_goal, seen.noise) > cores:
        return f"at the target it would use {at_goal:.1f} cores, {best.candidate.key} uses {cores:.1f}"
    return None


def _spare_cores(seen: Seen, settings: Mapping[str, Settings]) -> Step | None:
    """Nothing suffices though the CPU has room left: a decoder that takes more CPU time, in threads of its own.

    The training process takes what other workers made one batch after the other, and that may be the limit.
    """
    inside = [backend for backend in seen.by_probe(settings) if native_workers(find_backend(backend))]
    others = [outcome for outcome in seen.known.values() if outcome.candidate.backend not in inside]
    best = cheapest(others, seen.goal, seen.space)
    if best is None or best.measurement is None or meets(best.measurement, seen.goal):
        return None
    used, usable = best.measurement.cores_used, seen.space.usable_cores
    if used is None or usable is None or used > (1 - SPARE) * usable:
        return None
    return next((step for backend in inside if (step := _climb(seen, backend, settings[backend]))), None)
