"""The next step of the search, from what is known of the candidates. Pure.

After the probes (see :mod:`pipetune.search.probes`), backend by backend from the fastest probe down, the worker count
that should be just enough, corrected upwards until the target is met or more workers stop paying, and downwards until
fewer no longer suffice; then the best one without settings that have gained little, its other prefetch depths (deeper
ones where it does not surely suffice), the same with truer pixels, and, where nothing suffices, what differs from it in
one respect. A backend is left out when another one's probe is clearly cheaper, or when even linear scaling could not
make it win.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import replace

from pipetune.records import Candidate, Goal, Measurement, Outcome
from pipetune.search.choice import CRITERIA, cheapest, cores_decide, cores_slack
from pipetune.search.known import achieved, baseline, meets, straddles
from pipetune.search.probes import KNEE_GAIN, Seen, Settings, Step, doubtful, lead_of, next_probe, outdone, tune
from pipetune.space import Space, sensible

#: A backend is left out when its best conceivable result misses by more than this share, and by more than two probes of
#: one candidate differ by (one standard deviation).
PRUNE_MARGIN = 0.05
#: A training process that loads for itself is up to so much faster than with one worker process, which hands batches
#: over: 1.57 times at most over 38 pairs of the six grids in benchmarks/results/search_grids-*.json (2 cores).
NONE_TO_ONE = 1.6


def next_step(seen: Seen, seed: int) -> Step | None:
    """``None`` when the search is done."""
    step, settings = next_probe(seen, seed)
    if step is not None or not settings:
        return step
    for backend in seen.by_probe(settings):
        if outdone(seen, backend, settings) is None:
            step = _climb(seen, backend, settings[backend])
            if step is not None:
                return step
    return _plainer(seen) or _other_prefetch(seen) or _truer(seen, settings) or _beside(seen)


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
    steps = sum(len(space.workers_of(backend)) for backend in space.backends) + len(space.prefetch) - 1
    beside = settings + 5 if settings else 2
    return min(everything, 1 + probes + steps + beside + len(space.backends))


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
        why = f"{min(enough)} workers suffice: perhaps fewer do"
    else:
        count = _more(counts, points, measured, seen.goal)
        why = f"{max(measured, default=0)} workers are too few"
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
    return seen.at(backend, 1, chosen).worker_kind == "process" and share > seen.goal.target / NONE_TO_ONE


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
    share = achieved(probe, goal) or 0
    conceivable = share * max(seen.space.workers_of(backend)) / max(1, probe_count)
    if conceivable < goal.target * (1 - max(PRUNE_MARGIN, math.sqrt(2) * seen.noise)):
        return f"even {max(seen.space.workers_of(backend))} workers of it would reach {100 * conceivable:.0f} % at most"
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


def _other_prefetch(seen: Seen) -> Step | None:
    best = cheapest(seen.known.values(), seen.goal, seen.space)
    if best is None or best.measurement is None or best.candidate.num_workers == 0:
        return None
    # A deeper one bridges moments in which the loader lags behind, and costs memory.
    needs_none = meets(best.measurement, seen.goal) and not straddles(best.measurement, seen.goal)
    for depth in seen.space.prefetch:
        candidate = replace(best.candidate, prefetch_depth=depth)
        if seen.is_open(candidate) and not (needs_none and depth > best.candidate.prefetch_depth):
            return candidate, f"another prefetch depth of {best.candidate.key}"
    return None


def _truer(seen: Seen, settings: Mapping[str, Settings]) -> Step | None:
    """The best one's settings with a decoder whose pixels are nearer to Pillow's and that is about as cheap."""
    best = cheapest(seen.known.values(), seen.goal, seen.space)
    if best is None or best.measurement is None or not meets(best.measurement, seen.goal):
        return None
    if "pixels" not in seen.goal.cheapest:
        return None
    pixels = CRITERIA["pixels"]
    own = pixels.of_backend(best.candidate.backend, seen.space)
    for backend in settings:
        nearer = pixels.of_backend(backend, seen.space) < own - pixels.slack(own, seen.noise)
        candidate = sensible(replace(best.candidate, backend=backend))
        same = candidate.worker_kind == best.candidate.worker_kind and candidate.num_workers in (
            seen.space.workers_of(backend)
        )
        if nearer and same and seen.is_open(candidate) and outdone(seen, backend, settings) is None:
            return candidate, f"the settings of {best.candidate.key} with truer pixels"
    return None


def _plainer(seen: Seen) -> Step | None:
    """The best one without the settings that gained so little on a probe that chance may have done it."""
    best = cheapest(seen.known.values(), seen.goal, seen.space)
    if best is None or best.measurement is None or not meets(best.measurement, seen.goal):
        return None
    ranked = seen.by_probe({})
    lead = lead_of(ranked)
    names = doubtful(seen, lead, tune(seen, lead)[0])
    usual = {name: values[0] for name, values in seen.space.settings if name in names}
    plain = sensible(replace(best.candidate, **usual))
    if plain not in set(seen.space.grid()) or not seen.is_open(plain):
        return None
    return plain, f"{best.candidate.key} without what gained little on a probe: {', '.join(usual)}"


def _beside(seen: Seen) -> Step | None:
    """Where nothing suffices, what differs from the best in one respect: some settings count with many workers only.

    One worker process hands over so few batches that the training process, which takes them one after the other, is
    never the limit; sixteen are another matter.
    """
    best = cheapest(seen.known.values(), seen.goal, seen.space)
    if best is None or best.measurement is None or meets(best.measurement, seen.goal) or not best.candidate.num_workers:
        return None
    allowed = set(seen.space.grid())
    for candidate in map(sensible, _neighbours(seen.space, best.candidate)):
        if candidate in allowed and seen.is_open(candidate):
            return candidate, f"nothing suffices: beside {best.candidate.key}"
    return None


def _neighbours(space: Space, best: Candidate) -> Iterator[Candidate]:
    for name, values in space.settings:
        for value in values:
            yield replace(best, **{name: value})
            if name == "worker_kind":  # what is good for threads is not what is good for processes
                yield replace(best, **{name: value}, **{
                    other: choices[-1] for other, choices in space.settings if other in ("transfer", "reuse_buffers")
                })  # fmt: skip
    counts = space.workers_of(best.backend)
    place = counts.index(best.num_workers) if best.num_workers in counts else len(counts)
    for count in counts[max(0, place - 1) : place + 2]:
        if count:
            yield replace(best, num_workers=count)
