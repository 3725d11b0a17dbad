"""What to try near the best candidate that is known. Pure.

Where it suffices: settings that a probe did not settle, with and without them; fewer workers, or those that just miss
the target with a deeper prefetch; its other prefetch depths (deeper ones where it does not surely suffice); the same
with truer pixels. Where nothing suffices, what differs from it in one respect.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from pipetune.candidates.space import Space, canonical
from pipetune.records.sweep import Candidate
from pipetune.registry import THREADS
from pipetune.search.choice import CRITERIA, Pair, cheapest, is_cheaper
from pipetune.search.pooled import meets, straddles
from pipetune.search.probes import Seen, Settings, Step, doubtful, lead_of, outdone, tune, unsettled

#: It takes at least so many workers: this share of the cores in use, less one, which may be the training process's own.
#: The rest may be what workers cost each other: two hardware threads do 1.15 to 1.45 times the work of one (the range
#: in benchmarks/search/worlds.py), so that an image takes up to 1.7 times as long on each.
FEWEST = 0.6


def next_refinement(seen: Seen, settings: Mapping[str, Settings]) -> Step | None:
    """``None``: there is nothing more to try.

    Args:
        settings: those that each backend was climbed with.
    """
    best = cheapest(seen.known.values(), seen.goal, seen.space)
    if best is None or best.measurement is None:
        return None
    own = (best, best.measurement)
    if not meets(best.measurement, seen.goal):
        return _other_prefetch(seen, own) or _beside(seen, best.candidate)
    return (
        _richer(seen, best.candidate, settings)
        or _plainer(seen, best.candidate)
        or _fewer(seen, own, settings)
        or _just_too_few(seen, own)
        or _other_prefetch(seen, own)
        or _truer(seen, best.candidate, settings)
    )


def _richer(seen: Seen, best: Candidate, settings: Mapping[str, Settings]) -> Step | None:
    """With those settings, too, that were not kept, though chance may be why their probes gained nothing.

    What is far from its limit shows more clearly what it needs than one worker at its own.
    """
    lead = lead_of(seen.by_probe({}))
    climbed = seen.at(best.backend, best.num_workers, settings.get(best.backend, {}))
    if not best.num_workers or climbed != best:
        return None  # it has been made richer already, or plainer, or has another prefetch depth since
    return _with(seen, best, unsettled(seen, lead, tune(seen, lead)[0]), "with what lost little on a probe")


def _plainer(seen: Seen, best: Candidate) -> Step | None:
    """Without the settings that gained so little on a probe that chance may have done it."""
    if best.num_workers and best.prefetch_depth != seen.space.depth_of(best.backend, best.num_workers):
        return None  # it was done at the usual depth
    lead = lead_of(seen.by_probe({}))
    names = doubtful(seen, lead, tune(seen, lead)[0])
    usual = {name: values[0] for name, values in seen.space.settings if name in names}
    return _with(seen, best, usual, "without what gained little on a probe")


def _with(seen: Seen, best: Candidate, settings: Settings, why: str) -> Step | None:
    candidate = canonical(replace(best, **settings))
    if not seen.space.has(candidate) or not seen.is_open(candidate):
        return None
    names = [name for name in settings if getattr(candidate, name) != getattr(best, name)]
    return candidate, f"{best.key} {why}: {', '.join(names)}"


def _fewer(seen: Seen, best: Pair, settings: Mapping[str, Settings]) -> Step | None:
    """Fewer workers, where it has other settings than its backend was climbed with."""
    candidate, count = best[0].candidate, _count_below(seen, best[0].candidate)
    climbed = seen.at(candidate.backend, candidate.num_workers, settings.get(candidate.backend, {}))
    if count is None or replace(climbed, prefetch_depth=candidate.prefetch_depth) == candidate:
        return None
    if count < FEWEST * (best[1].cores_used or 0) - 1:
        return None
    fewer = replace(candidate, num_workers=count)
    return (fewer, f"{candidate.key} suffices: perhaps fewer workers do") if seen.is_open(fewer) else None


def _just_too_few(seen: Seen, best: Pair) -> Step | None:
    """A deeper prefetch of fewer workers, where those may just miss the target and would be clearly cheaper."""
    count = _count_below(seen, best[0].candidate)
    fewer = None if count is None else seen.known.get(replace(best[0].candidate, num_workers=count).key)
    if fewer is None or fewer.measurement is None or meets(fewer.measurement, seen.goal):
        return None
    cheaper = is_cheaper((fewer, fewer.measurement), best, seen.goal, seen.space, seen.noise)
    if not cheaper or not straddles(fewer.measurement, seen.goal):
        return None
    for depth in seen.space.prefetch:
        candidate = replace(fewer.candidate, prefetch_depth=depth)
        if depth > fewer.candidate.prefetch_depth and seen.is_open(candidate):
            return candidate, f"a deeper prefetch of {fewer.candidate.key}, which may just miss the target"
    return None


def _count_below(seen: Seen, candidate: Candidate) -> int | None:
    counts = [count for count in seen.space.workers_of(candidate.backend) if 0 < count < candidate.num_workers]
    return counts[-1] if counts else None


def _other_prefetch(seen: Seen, best: Pair) -> Step | None:
    candidate, measurement = best[0].candidate, best[1]
    if candidate.num_workers == 0:
        return None
    # A deeper one bridges moments in which the loader lags behind, and costs memory.
    needs_none = meets(measurement, seen.goal) and not straddles(measurement, seen.goal)
    for depth in seen.space.prefetch:
        other = replace(candidate, prefetch_depth=depth)
        if seen.is_open(other) and not (needs_none and depth > candidate.prefetch_depth):
            return other, f"another prefetch depth of {candidate.key}"
    return None


def _truer(seen: Seen, best: Candidate, settings: Mapping[str, Settings]) -> Step | None:
    """Its settings with a decoder whose pixels are nearer to Pillow's and that is about as cheap."""
    if "pixels" not in seen.goal.cheapest:
        return None
    pixels = CRITERIA["pixels"]
    own = pixels.of_backend(best.backend, seen.space)
    for backend in settings:
        nearer = pixels.of_backend(backend, seen.space) < own - pixels.slack(own, seen.noise)
        candidate = canonical(replace(best, backend=backend))
        loaders = {candidate.loader, best.loader}
        same = (len(loaders) == 1 or THREADS not in loaders) and seen.space.has(candidate)
        if nearer and same and seen.is_open(candidate) and outdone(seen, backend, settings) is None:
            return candidate, f"the settings of {best.key} with truer pixels"
    return None


def _beside(seen: Seen, best: Candidate) -> Step | None:
    """Nothing suffices: what differs in one respect. Some settings count with many workers only.

    One worker process hands over so few batches that the training process, which takes them one after the other, is
    never the limit; sixteen are another matter.
    """
    if not best.num_workers:
        return None
    for candidate in map(canonical, _neighbours(seen.space, best)):
        if seen.space.has(candidate) and seen.is_open(candidate):
            return candidate, f"nothing suffices: beside {best.key}"
    return None


def _neighbours(space: Space, best: Candidate) -> Iterator[Candidate]:
    for name, values in space.settings:
        for value in values:
            yield replace(best, **{name: value})
            if name == "loader":  # what is good for threads is not what is good for processes
                yield replace(best, **{name: value}, **{
                    other: choices[-1] for other, choices in space.settings if other in ("transfer", "reuse_buffers")
                })  # fmt: skip
    counts = space.workers_of(best.backend)
    place = counts.index(best.num_workers) if best.num_workers in counts else len(counts)
    for count in counts[max(0, place - 1) : place + 2]:
        if count:
            yield replace(best, num_workers=count)
