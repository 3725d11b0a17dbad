"""Tuning: which settings of a loader gain, measured one after the other on one backend's probe. Pure.

Settings (threads, bytes, reused memory, allocator) save about as much CPU time per image with one decoder as with
another, so they are tuned once, on the fastest backend, and checked on the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pipetune.candidates.space import Space
from pipetune.records.sweep import Candidate, Measurement
from pipetune.registry import find_backend, is_exact, native_workers
from pipetune.search.costs import cores_tolerance
from pipetune.search.effort import is_thorough
from pipetune.search.pooled import meets
from pipetune.search.state import Chosen, State
from pipetune.search.ties import CPU_NOISE
from pipetune.stats.noise import difference_by_chance

#: A rate is higher if it is so by more than this share; more workers that gain less are past the knee.
KNEE_GAIN = 0.05
#: A CPU time per image is less if it is so by more than this share.
CPU_GAIN = 0.03


def lead_of(state: State) -> str | None:
    """The backend on which settings are tuned; ``None``: none was measured with a worker.

    The fastest one on which most settings have an effect; unless the search is thorough, the one that is likely to be.
    """
    ranked = state.by_probe({})
    if not ranked:
        return None
    if not is_thorough(state.goal):
        return next(backend for backend in by_usual_cost(state.space) if backend in ranked)
    return next((backend for backend in ranked if not native_workers(find_backend(backend))), ranked[0])


def by_usual_cost(space: Space) -> list[str]:
    """Backends in the order in which they are likely to be the cheapest.

    First those whose pixels are those of the reference, because others are worth a look only if they are faster; last
    those with native workers, on which most settings have no effect.
    """
    found = [backend for backend in space.backends if space.workers_of(backend)]

    def order(name: str) -> tuple[bool, bool, bool, float]:
        backend = find_backend(name)
        return native_workers(backend), not is_exact(backend), not backend.releases_gil, backend.usual_cost

    return sorted(found, key=order)


def tune(state: State, backend: str) -> tuple[dict[str, Any], Candidate | None]:
    """The settings that gain on a backend's probe, and the next candidate to measure; ``None``: all were measured.

    Each setting is tried with what gained before it, in the order of the space.
    """
    chosen: dict[str, Any] = {}
    for name, values in state.space.settings:
        options = [{**chosen, name: value} for value in values]
        for option in options[1:]:
            candidate = state.probe(backend, option)
            if state.is_open(candidate):
                return chosen, candidate
        chosen = dict(_better(state, backend, options))
    return chosen, None


def untried_settings(state: State, backend: str) -> list[str]:
    """Names of the settings that were not tried on a backend's probe, in their order."""
    chosen, candidate = tune(state, backend)
    names = [name for name, _ in state.space.settings]
    if candidate is None:
        return []
    probe = state.probe(backend, chosen)
    first = next(place for place, name in enumerate(names) if getattr(candidate, name) != getattr(probe, name))
    return names[first:]


def untried_of(state: State, lead: str | None) -> list[str]:
    """The same of the lead; without one, all settings."""
    return [name for name, _ in state.space.settings] if lead is None else untried_settings(state, lead)


def settings_of(state: State, chosen: Chosen) -> dict[str, Chosen]:
    """The settings of each probed backend: the tuned ones where they gain on its own probe, else the defaults."""
    probed = [*state.by_probe({}), *state.by_probe(dict.fromkeys(state.space.backends, chosen))]
    return {backend: _better(state, backend, ({}, chosen)) for backend in dict.fromkeys(probed)}


def uncertain_gains(state: State, lead: str, chosen: Chosen) -> list[str]:
    """Names of the chosen settings whose gain on the lead's probe chance may explain (95 %)."""
    chance = difference_by_chance(max(state.noise, CPU_NOISE))
    found, before = [], dict[str, Any]()
    for name, values in state.space.settings:
        if chosen.get(name, values[0]) == values[0]:
            continue
        kept = {**before, name: chosen[name]}
        old, new = (state.measurement(state.probe(lead, settings)) for settings in (before, kept))
        if old is not None and new is not None and not _certainly_gains(new, old, chance):
            found.append(name)
        before = kept
    return found


def certain_gains(state: State) -> dict[str, Any]:
    """The chosen values of settings whose gain on the lead's probe chance cannot explain (95 %)."""
    lead = lead_of(state)
    if lead is None:
        return {}
    chosen, _ = tune(state, lead)
    uncertain = uncertain_gains(state, lead, chosen)
    defaults = {name: values[0] for name, values in state.space.settings}
    return {name: value for name, value in chosen.items() if name not in uncertain and value != defaults[name]}


def uncertain_losses(state: State, lead: str, chosen: Chosen) -> dict[str, Any]:
    """Values that were not chosen, though chance may explain their loss on the lead's probe (95 %).

    One value per setting, the fastest. A setting that has no effect on the lead is left out.
    """
    chance = difference_by_chance(max(state.noise, CPU_NOISE))
    found, before = {}, dict[str, Any]()
    for name, values in state.space.settings:
        kept = chosen.get(name, values[0])
        default, reference = state.probe(lead, before), state.measurement(state.probe(lead, before))
        tried = {}
        for value in values[1:] if kept == values[0] else ():
            probe = state.probe(lead, {**before, name: value})
            measurement = None if probe == default else state.measurement(probe)
            if measurement is None or reference is None or _certainly_gains(reference, measurement, chance):
                continue
            tried[value] = measurement.samples_per_s
        if tried:
            found[name] = max(tried, key=lambda value: tried[value])
        before = {**before, name: kept}
    return found


def _certainly_gains(new: Measurement, old: Measurement, chance: float) -> bool:
    faster = new.samples_per_s > (1 + chance) * old.samples_per_s
    before, after = old.cpu_s_per_1000_samples, new.cpu_s_per_1000_samples
    return faster or (before is not None and after is not None and before > (1 + chance) * after)


def _better(state: State, backend: str, options: Sequence[Chosen]) -> Chosen:
    """The last option whose probe gains on the best one before it."""
    best = options[0]
    for option in options[1:]:
        before, after = (state.measurement(state.probe(backend, chosen)) for chosen in (best, option))
        if after is not None and (before is None or _gains(after, before, state)):
            best = option
    return best


def _gains(new: Measurement, old: Measurement, state: State) -> bool:
    """Whether the first is faster; where both are sufficient, whether it uses fewer cores."""
    if meets(new, state.goal) and meets(old, state.goal):
        if new.cores_used is None or old.cores_used is None:
            return False
        return old.cores_used - new.cores_used > cores_tolerance(new.cores_used, state.noise)
    if new.samples_per_s > (1 + KNEE_GAIN) * old.samples_per_s:
        return True
    # With as many workers as it takes, less CPU time per image is what counts.
    before, after = old.cpu_s_per_1000_samples, new.cpu_s_per_1000_samples
    cheaper = before is not None and after is not None and after < (1 - CPU_GAIN) * before
    return cheaper and new.samples_per_s > (1 - CPU_GAIN) * old.samples_per_s
