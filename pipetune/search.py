"""Which candidate to measure next, and which one to recommend. Pure: outcomes in, a candidate out.

The path of the search: one probe per backend with one worker, the PyTorch default at a random place among them; on the
fastest of them the other settings of a loader one after the other (threads, bytes, reused memory, allocator), each kept
where it gains; the other backends once more with what was kept; then, backend by backend from the fastest probe down,
the worker count that should be just enough, corrected upwards until the target is met or more workers stop paying, and
downwards until fewer no longer suffice; then the prefetch depths of the best one. A backend is left out when even
linear scaling could not make it win. No state: the same outcomes give the same next candidate, so an interrupted sweep
goes on where it stopped.

Why no general optimiser: there are few dozen candidates, the response to workers is monotone up to a knee, and each
measurement costs ten seconds; a model that needs a dozen points to begin with has measured half the grid by then.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pipetune.records import Candidate, Goal, Measurement, Outcome
from pipetune.registry import find_backend
from pipetune.space import Space

#: More workers that gain less than this share are past the knee.
KNEE_GAIN = 0.05
#: Differences up to this (cores; and a tenth of larger counts) and this share of memory are no differences.
SAME_CORES = 0.15
SAME_MEMORY = 0.05
#: A backend is left out when its best conceivable result misses by more than this share.
PRUNE_MARGIN = 0.10


def baseline(space: Space) -> Candidate:
    """What a script does untuned: PyTorch's DataLoader defaults around ImageFolder's Pillow loader."""
    return Candidate(backend=space.default_backend, num_workers=0, prefetch_depth=0, batch_size=space.batch_size)


def achieved(measurement: Measurement, goal: Goal) -> float | None:
    """The share that the goal speaks of (0..1); ``None`` when it was not measured."""
    if goal.metric == "nvml":
        return None if measurement.gpu_util_pct is None else measurement.gpu_util_pct / 100
    return measurement.goodput


def meets(measurement: Measurement, goal: Goal) -> bool:
    """The point estimate reaches the target."""
    share = achieved(measurement, goal)
    return share is not None and share >= goal.target


def latest(outcomes: Iterable[Outcome]) -> dict[str, Outcome]:
    """The newest outcome per candidate; the ceiling is not among them.

    A repeated measurement replaces the drifted one; a repetition that failed replaces nothing that was measured.
    """
    newest: dict[str, Outcome] = {}
    for outcome in outcomes:
        key = outcome.candidate.key
        known = newest.get(key)
        if outcome.role != "ceiling" and (outcome.measurement or known is None or known.measurement is None):
            newest[key] = outcome
    return newest


def cores_of(outcome: Outcome, measurement: Measurement) -> float:
    """Cores really used (CPU seconds per second); the worker count stands in where they were not measured."""
    return measurement.cores_used if measurement.cores_used is not None else max(1, outcome.candidate.num_workers)


def recommend(outcomes: Iterable[Outcome], goal: Goal, space: Space) -> Outcome | None:
    """The cheapest candidate of the space that meets the goal; if none does, the one that comes nearest.

    The baseline is measured whatever the user listed, but recommended only where it was listed or nothing else worked.

    Cheapest: fewest cores, then least memory, then fewest workers and smallest prefetch depth. What differs by less
    than measurements of the same candidate do counts as equal, so that chance does not decide over the next criterion.
    """
    listed = set(space.grid())
    known = [(outcome, outcome.measurement) for outcome in latest(outcomes).values() if outcome.measurement]
    measured = [pair for pair in known if _as_listed(pair[0].candidate, space) in listed] or known
    enough = [(outcome, m) for outcome, m in measured if meets(m, goal)]
    if not enough:
        nearest = max(measured, key=lambda pair: (achieved(pair[1], goal) or 0, pair[1].samples_per_s), default=None)
        return nearest[0] if nearest else None
    fewest = min(cores_of(outcome, m) for outcome, m in enough)
    lean = [(outcome, m) for outcome, m in enough if cores_of(outcome, m) <= fewest + max(SAME_CORES, 0.1 * fewest)]
    least = min(m.pss_bytes or 0 for _, m in lean)
    small = [outcome for outcome, m in lean if (m.pss_bytes or 0) <= (1 + SAME_MEMORY) * least]
    return min(small, key=lambda outcome: (outcome.candidate.num_workers, outcome.candidate.prefetch_depth))


def _as_listed(candidate: Candidate, space: Space) -> Candidate:
    """The baseline does not pin memory, as PyTorch does not by default; otherwise it may be a point of the space."""
    return replace(candidate, pin_memory=space.pin_memory)


def most_candidates(space: Space, *, grid: bool) -> int:
    """As many as a sweep measures at most, the baseline included."""
    everything = len({baseline(space), *space.grid()})
    if grid:
        return everything
    probes = 2 * len(space.backends) + sum(len(values) - 1 for _, values in space.settings)
    steps = sum(len(space.workers_of(backend)) for backend in space.backends) + len(space.prefetch) - 1
    return min(everything, 1 + probes + steps)


def next_candidate(space: Space, outcomes: Sequence[Outcome], goal: Goal, seed: int) -> Candidate | None:
    """The candidate to measure next; ``None`` when the search is done."""
    known = latest(outcomes)
    for candidate in _opening(space, seed):
        if candidate.key not in known:
            return candidate
    ranked = _by_probe(space, known, {})
    if not ranked:
        return None
    # On one whose workers are ours: most settings mean nothing to a library that has threads of its own.
    lead = next((backend for backend in ranked if not find_backend(backend).in_process_workers), ranked[0])
    chosen, untried = _tune(space, lead, known, goal)
    if untried is not None:
        return untried
    for backend in ranked:
        again = _probe(space, backend, chosen)
        if again.key not in known and again not in space.excluded:
            return again
    settings = {backend: _better(space, backend, known, goal, ({}, chosen)) for backend in ranked}
    for backend in _by_probe(space, known, settings):
        step = _climb(space, backend, settings[backend], known, goal)
        if step is not None:
            return step
    return _other_prefetch(space, known, goal)


def next_of_grid(space: Space, outcomes: Sequence[Outcome], seed: int) -> Candidate | None:
    """The same for a sweep of everything, in random order."""
    known = latest(outcomes)
    everything = list(dict.fromkeys((baseline(space), *space.grid())))
    random.Random(seed).shuffle(everything)
    return next((candidate for candidate in everything if candidate.key not in known), None)


def _opening(space: Space, seed: int) -> list[Candidate]:
    probes = [_probe(space, backend, {}) for backend in space.backends if space.workers_of(backend)]
    opening = list(dict.fromkeys((baseline(space), *probes)))
    random.Random(seed).shuffle(opening)
    return opening


def _probe(space: Space, backend: str, chosen: Mapping[str, Any]) -> Candidate:
    counts = space.workers_of(backend)
    count = next((count for count in counts if count >= 1), counts[-1])
    return space.candidate(backend, count, space.depth_of(backend, count), **chosen)


def _by_probe(space: Space, known: dict[str, Outcome], settings: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Backends whose probe with their settings was measured, fastest first."""
    rates = {}
    for backend in space.backends:
        if space.workers_of(backend):
            measurement = _measured(_probe(space, backend, settings.get(backend, {})), known)
            if measurement is not None:
                rates[backend] = measurement.samples_per_s
    return sorted(rates, key=lambda backend: -rates[backend])


def _measured(candidate: Candidate, known: dict[str, Outcome]) -> Measurement | None:
    outcome = known.get(candidate.key)
    return None if outcome is None else outcome.measurement


def _tune(space: Space, backend: str, known: dict[str, Outcome], goal: Goal) -> tuple[dict[str, Any], Candidate | None]:
    """The settings that gain on a backend's probe, knob by knob; and a candidate to measure before that is known."""
    chosen: dict[str, Any] = {}
    for name, values in space.settings:
        options = [{**chosen, name: value} for value in values]
        for option in options[1:]:
            candidate = _probe(space, backend, option)
            if candidate.key not in known and candidate not in space.excluded:
                return chosen, candidate
        chosen = dict(_better(space, backend, known, goal, options))
    return chosen, None


def _better(
    space: Space, backend: str, known: dict[str, Outcome], goal: Goal, options: Sequence[Mapping[str, Any]]
) -> Mapping[str, Any]:
    """The option whose probe is clearly better than those before it: faster, or cheaper where both suffice."""
    best = options[0]
    for option in options[1:]:
        ours = _measured(_probe(space, backend, best), known)
        theirs = _measured(_probe(space, backend, option), known)
        if theirs is not None and (ours is None or _gains(theirs, ours, goal)):
            best = option
    return best


def _gains(new: Measurement, old: Measurement, goal: Goal) -> bool:
    if meets(new, goal) and meets(old, goal):
        fewer = (old.cores_used or 0) - (new.cores_used or 0)
        return fewer > max(SAME_CORES, 0.1 * (new.cores_used or 0))
    return new.samples_per_s > (1 + KNEE_GAIN) * old.samples_per_s


def _points(
    space: Space, backend: str, chosen: Mapping[str, Any], known: dict[str, Outcome]
) -> dict[int, Measurement | None]:
    """What is known per worker count at the usual prefetch depth; ``None``: it failed."""
    points = {}
    for count in space.workers_of(backend):
        outcome = known.get(space.candidate(backend, count, space.depth_of(backend, count), **chosen).key)
        if outcome is not None:
            points[count] = outcome.measurement
    return points


def _climb(
    space: Space, backend: str, chosen: Mapping[str, Any], known: dict[str, Outcome], goal: Goal
) -> Candidate | None:
    points = _points(space, backend, chosen, known)
    measured = {count: m for count, m in points.items() if m is not None}
    enough = [count for count, m in measured.items() if meets(m, goal)]
    if _cannot_win(space, backend, measured, known, goal):
        return None
    if enough:
        count = _fewer(space.workers_of(backend), points, min(enough))
    else:
        count = _more(space.workers_of(backend), points, measured, goal)
        if count is None and _leads(backend, known):
            count = _beside_the_best(space.workers_of(backend), points, measured)
    if count is None:
        return None
    step = space.candidate(backend, count, space.depth_of(backend, count), **chosen)
    # What does not fit, or is another count's candidate under these settings, is no step.
    return None if step.key in known or step in space.excluded else step


def _fewer(counts: tuple[int, ...], points: dict[int, Measurement | None], enough: int) -> int | None:
    """The middle of the worker counts below the least that suffices and above the most that does not."""
    below = [count for count in counts if count < enough]
    too_few = max((count for count in below if count in points), default=-1)
    open_counts = [count for count in below if count > too_few]
    return open_counts[len(open_counts) // 2] if open_counts else None


def _more(
    counts: tuple[int, ...], points: dict[int, Measurement | None], measured: dict[int, Measurement], goal: Goal
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


def _leads(backend: str, known: dict[str, Outcome]) -> bool:
    """Of all that was measured, the fastest has this backend."""
    rates = {key: outcome.measurement.samples_per_s for key, outcome in known.items() if outcome.measurement}
    return bool(rates) and known[max(rates, key=lambda key: rates[key])].candidate.backend == backend


def _beside_the_best(
    counts: tuple[int, ...], points: dict[int, Measurement | None], measured: dict[int, Measurement]
) -> int | None:
    """A count next to the fastest one that was passed over: the rate may peak between two that were tried."""
    if not measured:
        return None
    fastest = max(measured, key=lambda count: measured[count].samples_per_s)
    place = counts.index(fastest)
    beside = counts[max(0, place - 1) : place] + counts[place + 1 : place + 2]
    return next((count for count in beside if count >= 1 and count not in points), None)


def _cannot_win(
    space: Space, backend: str, measured: dict[int, Measurement], known: dict[str, Outcome], goal: Goal
) -> bool:
    """Another backend meets the goal, and this one could not meet it for less even under linear scaling."""
    best = recommend(known.values(), goal, space)
    if best is None or best.measurement is None or not meets(best.measurement, goal) or not measured:
        return False
    if best.candidate.backend == backend:
        return False
    probe_count, probe = min(measured.items())
    share = achieved(probe, goal) or 0
    if share * max(space.workers_of(backend)) / max(1, probe_count) < goal.target * (1 - PRUNE_MARGIN):
        return True
    per_sample, cores = probe.cpu_s_per_1000_samples, best.measurement.cores_used
    if per_sample is None or cores is None:
        return False
    # At the goal it would use this many cores, however many workers share them.
    at_goal = per_sample / 1000 * probe.samples_per_s * goal.target / max(share, 1e-9)
    return at_goal * (1 - PRUNE_MARGIN) > cores


def _other_prefetch(space: Space, known: dict[str, Outcome], goal: Goal) -> Candidate | None:
    best = recommend(known.values(), goal, space)
    if best is None or best.candidate.num_workers == 0:
        return None
    for depth in space.prefetch:
        candidate = replace(best.candidate, prefetch_depth=depth)
        if candidate.key not in known and candidate not in space.excluded:
            return candidate
    return None
