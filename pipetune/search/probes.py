"""Probes: each backend measured with one worker, first with default settings, then with tuned ones. Pure.

The PyTorch default is measured at a random place among the first probes. The settings are tuned on the fastest of them
(:mod:`pipetune.search.tuning`). The other backends are probed again with the settings that gained there, unless another
backend would dominate them all the same (:mod:`pipetune.search.pruning`). Why again: without it the recommendation uses
no more cores than necessary in 77 % of the grids only.
"""

from __future__ import annotations

import random

from pipetune.records.sweep import Candidate
from pipetune.search.effort import enough, is_thorough, may_matter, may_suffice
from pipetune.search.pooled import baseline, meets, untuned_name
from pipetune.search.pruning import dominated, optimistic_estimate
from pipetune.search.state import Chosen, State, Step
from pipetune.search.tuning import by_usual_cost, lead_of, settings_of, tune, untried_of
from pipetune.search.worker_count import next_count


def next_probe(state: State, seed: int) -> tuple[Step | None, dict[str, Chosen]]:
    """The next probe and the settings that are best for each backend so far; ``None``: no probe is left.

    Args:
        seed: of the order of the first probes.
    """
    if not is_thorough(state.goal):
        return _next_of_few(state)
    for candidate in first_probes(state, seed):
        if candidate.key not in state.outcomes:
            return (candidate, _why(state, candidate)), {}
    lead = lead_of(state)
    if lead is None:
        return None, {}
    ranked = state.by_probe({})
    chosen, untried = tune(state, lead)
    if untried is not None:
        why = f"another setting, on the probe of {lead}: {_differences(untried, state.probe(lead, chosen))}"
        return (untried, why), {}
    settings = settings_of(state, chosen)
    for backend in ranked:
        again, estimate = state.probe(backend, chosen), optimistic_estimate(state, backend, lead, chosen)
        if state.is_open(again) and dominated(state, backend, settings, estimate) is None:
            return (again, f"a probe of {backend} with the settings that gained on {lead}"), settings
    return None, settings


def _next_of_few(state: State) -> tuple[Step | None, dict[str, Chosen]]:
    """As :func:`next_probe`, of the backend that is likely to be the cheapest only; the default comes first."""
    untuned = baseline(state.space)
    if untuned.key not in state.outcomes:
        return (untuned, _why(state, untuned)), {}
    order = by_usual_cost(state.space)
    lead = lead_of(state)
    if lead is None:
        if enough(state, None, {}, untried_of(state, None)):
            return None, {}
        first = next((probe for b in order if (probe := state.probe(b, {})).key not in state.outcomes), None)
        return None if first is None else (first, _why(state, first)), {}
    chosen, untried = tune(state, lead)
    settings = settings_of(state, chosen)
    if enough(state, lead, chosen, untried_of(state, lead)):
        return None, {}
    if untried is not None:
        # Where the lead may suffice with what gained so far, that is found out before more is tried.
        if not _suffices(state) and may_suffice(state, state.probe(lead, chosen)):
            step = next_count(state, lead, chosen)
            if step is not None:
                return step, {}
        why = f"another setting, on the probe of {lead}: {_differences(untried, state.probe(lead, chosen))}"
        return (untried, why), {}
    # Where the lead cannot suffice, the leanest decoder is found before its worker counts are.
    return (None if may_suffice(state, state.probe(lead, chosen)) else next_likely_probe(state)), settings


def _suffices(state: State) -> bool:
    return any(outcome.measurement and meets(outcome.measurement, state.goal) for outcome in state.outcomes.values())


def next_likely_probe(state: State) -> Step | None:
    """The probe of another backend that may matter, with the tuned settings; in a search that is not thorough."""
    lead = lead_of(state)
    if lead is None or is_thorough(state.goal):
        return None
    chosen, _ = tune(state, lead)
    for backend in by_usual_cost(state.space):
        probe = state.probe(backend, chosen)
        if backend != lead and state.is_open(probe) and may_matter(state, backend, lead):
            return probe, f"a probe of {backend} with the settings that gained on {lead}"
    return None


def first_probes(state: State, seed: int) -> list[Candidate]:
    """One worker of each backend, and the baseline, in random order."""
    space = state.space
    probes = [state.probe(backend, {}) for backend in space.backends if space.workers_of(backend)]
    found = list(dict.fromkeys((baseline(space), *probes)))
    random.Random(seed).shuffle(found)
    return found


def _why(state: State, candidate: Candidate) -> str:
    if candidate == baseline(state.space):
        return f"{untuned_name(state.space)}, which gains are stated against"
    return f"a probe of {candidate.backend}"


def _differences(one: Candidate, other: Candidate) -> str:
    names = [name for name in one.__slots__ if getattr(one, name) != getattr(other, name)]
    return ", ".join(f"{name} {getattr(one, name)}" for name in names)
