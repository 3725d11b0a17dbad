"""What to try near the best candidate so far. Pure.

Where the best is sufficient: the settings about which its probes were uncertain, added and dropped; fewer workers;
fewer workers with a deeper prefetch, where those may just miss the target; its other prefetch depths; a decoder with
more exact pixels. Where none is sufficient: its neighbours, which differ in one respect.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Container, Iterator, Mapping
from dataclasses import replace

from pipetune.candidates.describe import describe
from pipetune.candidates.settings import LOADER
from pipetune.candidates.space import Space
from pipetune.records.sweep import Candidate, Measurement
from pipetune.registry import THREADS
from pipetune.search.choice import cheapest
from pipetune.search.costs import CRITERIA, Pair, is_cheaper
from pipetune.search.effort import has_idle_cores, is_thorough
from pipetune.search.pooled import is_inconclusive, meets
from pipetune.search.pruning import dominated
from pipetune.search.state import Chosen, State, Step
from pipetune.search.tuning import CPU_GAIN, certain_gains, lead_of, tune, uncertain_gains, uncertain_losses

#: Minimum number of workers worth trying, as a share of the cores in use; less one core, which may be the training
#: process's own. The rest may be what workers cost each other: two hardware threads do 1.15 to 1.45 times the work of
#: one (the range in benchmarks/search/worlds.py), so that an image takes up to 1.7 times as long on each.
FEWEST_SHARE = 0.6
#: Cores that the training process itself may have in what loading uses.
_MAIN_CORES = 0.5


def next_refinement(state: State, settings: Mapping[str, Chosen]) -> Step | None:
    """The next candidate near the best one; ``None``: there is nothing more to try.

    Args:
        settings: of each backend, with which its worker count was found.
    """
    best = cheapest(state.outcomes.values(), state.goal, state.space, state.noise)
    if best is None or best.measurement is None:
        return None
    own = (best, best.measurement)
    if not meets(best.measurement, state.goal):
        if is_thorough(state.goal) or has_idle_cores(state, best):
            counts = None
            if state.space.confirm_alone and not is_thorough(state.goal):
                # Each takes seconds of a script, and fewer workers leave more cores idle.
                counts = range(best.candidate.num_workers, sys.maxsize)
            return (
                _other_prefetch(state, own)
                or _neighbours(state, best.candidate, {}, counts)
                or _leaner_decoder(state, best.candidate, settings)
            )
        # The processor is the limit: what cost more of it on a probe will not be faster, nor will a longer queue, more
        # workers, or fewer than there are cores in use.
        fewest = min(best.candidate.num_workers, math.ceil(_cores_of_rank(state, best.measurement) - _MAIN_CORES))
        counts = range(fewest, best.candidate.num_workers + 1)
        return _neighbours(state, best.candidate, certain_gains(state), counts) or _leaner_decoder(
            state, best.candidate, settings
        )
    return (
        _add_setting(state, best.candidate, settings)
        or _drop_setting(state, best.candidate)
        or _fewer_workers(state, own, settings)
        or _deeper_prefetch(state, own)
        or _other_prefetch(state, own)
        or _exact_pixels(state, best.candidate, settings)
    )


def _add_setting(state: State, best: Candidate, settings: Mapping[str, Chosen]) -> Step | None:
    """The best with the settings that lost on a probe, where chance may explain the loss.

    Why: one worker at its own limit shows less clearly what a setting saves than a loader that has capacity to spare.
    """
    lead = lead_of(state)
    as_found = state.at(best.backend, best.num_workers, settings.get(best.backend, {}))
    if lead is None or not best.num_workers or as_found != best:
        return None  # it has had a setting added or dropped, or another prefetch depth, since
    return _changed(state, best, uncertain_losses(state, lead, tune(state, lead)[0]), "with settings that lost little")


def _drop_setting(state: State, best: Candidate) -> Step | None:
    """The best without the settings that gained on a probe, where chance may explain the gain."""
    if best.num_workers and best.prefetch_depth != state.space.depth_of(best.backend, best.num_workers):
        return None  # this was tried at the default depth
    lead = lead_of(state)
    if lead is None:
        return None
    names = uncertain_gains(state, lead, tune(state, lead)[0])
    defaults = {name: values[0] for name, values in state.space.settings if name in names}
    return _changed(state, best, defaults, "without settings that gained little")


def _changed(state: State, best: Candidate, settings: Chosen, why: str) -> Step | None:
    candidate = state.space.canonical(replace(best, **settings))
    if not state.space.has(candidate) or not state.is_open(candidate):
        return None
    names = [name for name in settings if getattr(candidate, name) != getattr(best, name)]
    return candidate, f"{describe(best)}: {why} on a probe ({', '.join(names)})"


def _fewer_workers(state: State, best: Pair, settings: Mapping[str, Chosen]) -> Step | None:
    """The best with fewer workers, where its settings are others than those with which its worker count was found."""
    candidate, count = best[0].candidate, _count_below(state, best[0].candidate)
    as_found = state.at(candidate.backend, candidate.num_workers, settings.get(candidate.backend, {}))
    if count is None or replace(as_found, prefetch_depth=candidate.prefetch_depth) == candidate:
        return None
    if count < FEWEST_SHARE * _cores_of_rank(state, best[1]) - 1:
        return None
    fewer = replace(candidate, num_workers=count)
    return (fewer, f"{describe(candidate)} is sufficient, fewer workers may be") if state.is_open(fewer) else None


def _cores_of_rank(state: State, measurement: Measurement) -> float:
    """Cores that loading takes in one rank; 0 where that is not known."""
    return (measurement.cores_used or 0.0) / state.space.ranks


def _deeper_prefetch(state: State, best: Pair) -> Step | None:
    """Fewer workers with a deeper prefetch, where they may just miss the target and would be cheaper.

    Why: a deeper prefetch bridges moments in which the loader is slow.
    """
    count = _count_below(state, best[0].candidate)
    fewer = None if count is None else state.outcomes.get(replace(best[0].candidate, num_workers=count).key)
    if fewer is None or fewer.measurement is None or meets(fewer.measurement, state.goal):
        return None
    cheaper = is_cheaper((fewer, fewer.measurement), best, state.goal, state.space, state.noise)
    if not cheaper or not is_inconclusive(fewer.measurement, state.goal):
        return None
    for depth in state.space.prefetch:
        candidate = replace(fewer.candidate, prefetch_depth=depth)
        if depth > fewer.candidate.prefetch_depth and state.is_open(candidate):
            return candidate, f"a deeper prefetch, because {describe(fewer.candidate)} may just miss the target"
    return None


def _count_below(state: State, candidate: Candidate) -> int | None:
    counts = [count for count in state.space.workers_of(candidate.backend) if 0 < count < candidate.num_workers]
    return counts[-1] if counts else None


def _other_prefetch(state: State, best: Pair) -> Step | None:
    """The best with another prefetch depth; with a deeper one only where its interval does not lie above the target.

    Why: a smaller depth costs less memory, a deeper one bridges moments in which the loader is slow.
    """
    candidate, measurement = best[0].candidate, best[1]
    if candidate.num_workers == 0:
        return None
    needs_none = meets(measurement, state.goal) and not is_inconclusive(measurement, state.goal)
    for depth in state.space.prefetch:
        other = replace(candidate, prefetch_depth=depth)
        if state.is_open(other) and not (needs_none and depth > candidate.prefetch_depth):
            return other, f"another prefetch depth of {describe(candidate)}"
    return None


def _exact_pixels(state: State, best: Candidate, settings: Mapping[str, Chosen]) -> Step | None:
    """The best's settings with a decoder whose pixels are nearer to Pillow's and which is about as cheap."""
    if "pixels" not in state.goal.cheapest:
        return None
    pixels = CRITERIA["pixels"]
    own = pixels.of_backend(best.backend, state.space)
    for backend in settings:
        nearer = pixels.of_backend(backend, state.space) < own - pixels.tolerance(own, state.noise)
        candidate = state.space.canonical(replace(best, backend=backend))
        loaders = {candidate.loader, best.loader}
        same = (len(loaders) == 1 or THREADS not in loaders) and state.space.has(candidate)
        if nearer and same and state.is_open(candidate) and dominated(state, backend, settings) is None:
            return candidate, f"the settings of {describe(best)} with more exact pixels"
    return None


def _neighbours(state: State, best: Candidate, kept: Chosen, counts: Container[int] | None = None) -> Step | None:
    """Where none is sufficient: a candidate that differs from the best in one respect.

    Why: some settings gain with many workers only. One worker process hands over so few batches that the training
    process, which takes them over one by one, is never the limit; with sixteen it may be. Without this rule the 95th
    percentile of regret on paper is 4.9 % instead of 1.9 %.

    Args:
        kept: settings that are not changed.
        counts: worker counts that may be tried; ``None``: all.
    """
    if not best.num_workers:
        return None
    for candidate in map(state.space.canonical, _variants(state.space, best)):
        same = all(getattr(candidate, name) == value for name, value in kept.items())
        same = same and (counts is None or candidate.num_workers in counts)
        if same and state.space.has(candidate) and state.is_open(candidate):
            return candidate, f"none is sufficient yet: differs in one respect from {describe(best)}"
    return None


def _leaner_decoder(state: State, best: Candidate, settings: Mapping[str, Chosen]) -> Step | None:
    """Where none is sufficient: the best's settings with a decoder whose probe needed less CPU time per image.

    Why: settings that gain with many workers only are found on one decoder, which need not be the leanest.
    """
    own = state.measurement(state.probe(best.backend, settings.get(best.backend, {})))
    if own is None or own.cpu_s_per_1000_samples is None:
        return None
    for backend in state.by_probe(settings):
        probe = state.measurement(state.probe(backend, settings[backend]))
        candidate = state.space.canonical(replace(best, backend=backend))
        leaner = probe and (probe.cpu_s_per_1000_samples or math.inf) < (1 - CPU_GAIN) * own.cpu_s_per_1000_samples
        if leaner and state.space.has(candidate) and state.is_open(candidate):
            return candidate, f"the settings of {describe(best)} with a decoder that needs less"
    return None


def _variants(space: Space, best: Candidate) -> Iterator[Candidate]:
    for name, values in space.settings:
        for value in values:
            yield replace(best, **{name: value})
            if name == LOADER:  # settings that gain with processes need not gain with threads
                yield replace(best, **{name: value}, **{
                    other: choices[-1] for other, choices in space.settings if other in ("transfer", "reuse_buffers")
                })  # fmt: skip
    counts = space.workers_of(best.backend)
    place = counts.index(best.num_workers) if best.num_workers in counts else len(counts)
    for count in counts[max(0, place - 1) : place + 2]:
        if count:
            yield replace(best, num_workers=count)
