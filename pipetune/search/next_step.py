"""The next step of the search. Pure.

1. The probes (:mod:`pipetune.search.probes`).
2. Backend by backend, from the fastest probe down (see :func:`_in_order`): its smallest sufficient worker count
   (:mod:`pipetune.search.worker_count`). A backend that another one dominates, or that cannot win, is left out
   (:mod:`pipetune.search.pruning`).
3. What is near the best candidate (:mod:`pipetune.search.refine`).
4. Where no candidate is sufficient though cores are idle: backends with threads of their own, also dominated ones.

Unless the search is thorough, the probes are those of one backend, others that are likely to matter come after its
worker counts, and all of it ends when too little is left to save (:mod:`pipetune.search.effort`).
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from pipetune.candidates.settings import KEEP_WORKERS
from pipetune.candidates.space import Space
from pipetune.records.sweep import Outcome
from pipetune.registry import find_backend, native_workers
from pipetune.search.choice import cheapest
from pipetune.search.effort import enough, has_idle_cores, is_thorough
from pipetune.search.pooled import baseline, meets
from pipetune.search.probes import next_likely_probe, next_probe
from pipetune.search.pruning import dominated
from pipetune.search.refine import next_refinement
from pipetune.search.restarts import keeps_workers, next_restart_remedy
from pipetune.search.state import Chosen, State, Step
from pipetune.search.tuning import by_usual_cost, lead_of, tune
from pipetune.search.worker_count import next_count
from pipetune.stats.noise import difference_by_chance


def next_step(state: State, seed: int) -> Step | None:
    """What to measure next, and why; ``None`` when the search is done."""
    if baseline(state.space).key in state.outcomes and (remedy := next_restart_remedy(state)) is not None:
        return remedy
    step, settings = next_probe(state, seed)
    if step is not None or not settings:
        return step
    lead = lead_of(state)
    assert lead is not None
    if enough(state, lead, tune(state, lead)[0], ()):
        return None
    best = cheapest(state.outcomes.values(), state.goal, state.space, state.noise)
    for backend in _in_order(state, settings):
        # The best one's backend stays, also where only idle cores brought it back.
        stays = best is not None and best.candidate.backend == backend and best.candidate.num_workers > 1
        in_play = stays or dominated(state, backend, settings) is None
        chosen = _with_kept_workers(state, backend, settings[backend])
        if in_play and (step := next_count(state, backend, chosen)):
            return step
    return next_likely_probe(state) or next_refinement(state, settings) or _spare_cores(state, settings)


def _with_kept_workers(state: State, backend: str, chosen: Chosen) -> Chosen:
    """The settings of a backend, with workers that live on where the best candidate's do."""
    kept = {**chosen, KEEP_WORKERS: True}
    return kept if keeps_workers(state) and state.points(backend, kept) else chosen


def _in_order(state: State, settings: Mapping[str, Chosen]) -> list[str]:
    """Backends in the order in which their worker counts are measured: the fastest probe first.

    Unless the search is thorough, of those whose probes differ by no more from the fastest one's than chance may make,
    the one that is likely to be the cheapest comes first. Why: a search that ends with the first sufficient candidate
    would else recommend whatever a noisy probe has put in front (in one of four sweeps with the arguments of
    ``benchmarks/search/search_stability.py``).
    """
    ranked = state.by_probe(settings)
    if is_thorough(state.goal) or not ranked:
        return ranked
    rates = {name: found.samples_per_s for name in ranked if (found := state.probed(name, settings)) is not None}
    least = rates[ranked[0]] / (1 + difference_by_chance(state.noise))
    alike = [name for name in by_usual_cost(state.space) if rates.get(name, 0.0) >= least]
    return [*alike, *(name for name in ranked if name not in alike)]


def next_of_grid(space: Space, measured: Mapping[str, Outcome], seed: int) -> Step | None:
    """The next candidate where all are measured, in random order; ``None``: all were.

    Args:
        measured: by key.
    """
    everything = list(dict.fromkeys((baseline(space), *space.grid())))
    random.Random(seed).shuffle(everything)
    return next(((candidate, "every candidate") for candidate in everything if candidate.key not in measured), None)


def max_candidates(space: Space, *, grid: bool) -> int:
    """Maximum number of candidates that are measured before the first block, the baseline included."""
    everything = len({baseline(space), *space.grid()})
    if grid:
        return everything
    settings = sum(len(values) for _, values in space.settings)
    probes = 2 * len(space.backends) + settings
    counts = [len(space.workers_of(backend)) for backend in space.backends]
    depths = 2 * (len(space.prefetch) - 1)
    # The best one with and without uncertain settings, then its own worker counts; or its neighbours.
    near = max(settings + 5, 2 + max(counts, default=0)) if settings else 2
    remedies = 2 * sum(len(values) - 1 for _, values in space.restart_remedies)
    return remedies + min(everything, 1 + probes + sum(counts) + depths + near + len(space.backends))


def _spare_cores(state: State, settings: Mapping[str, Chosen]) -> Step | None:
    """The next worker count of a backend with native workers, where none is sufficient though cores are idle.

    Why: the training process takes over the batches of other workers one by one, and that may be the limit; threads
    inside a library need not pass through it. One that decodes on the accelerator needs hardly any cores.
    """
    native = [backend for backend in by_usual_cost(state.space) if native_workers(find_backend(backend))]
    others = [outcome for outcome in state.outcomes.values() if outcome.candidate.backend not in native]
    best = cheapest(others, state.goal, state.space, state.noise)
    if best is None or best.measurement is None or meets(best.measurement, state.goal):
        return None
    if not has_idle_cores(state, best):
        native = [backend for backend in native if backend in state.space.accelerator_decodes]
    for backend in native:
        probe = state.probe(backend, {})
        if probe.key not in state.outcomes and state.is_open(probe):
            return probe, f"a probe of {backend}, because none is sufficient yet"
        if step := next_count(state, backend, settings.get(backend, {})):
            return step
    return None
