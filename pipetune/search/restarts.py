"""Remedies for workers that start anew with each epoch: tried on the script as it is and on the best candidate. Pure.

Why not as the other settings, on the probe: what a restart costs grows with the number of workers and shrinks with the
length of an epoch, and in long epochs there is nothing to gain.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pipetune.candidates.describe import describe
from pipetune.records.sweep import Outcome
from pipetune.search.choice import cheapest
from pipetune.search.pooled import baseline, meets
from pipetune.search.state import State, Step
from pipetune.stats.noise import restarting_frac

#: Share of the time from which on restarts are noticeable: the target of most sweeps leaves 5 % to all that is lost.
MIN_RESTART_FRAC = 0.02


def next_restart_remedy(state: State) -> Step | None:
    """A candidate with another remedy; ``None``: there is none, or restarts cost too little."""
    for outcome in _worth_a_remedy(state):
        m = outcome.measurement
        if m is None or meets(m, state.goal) or restarting_frac(m) < MIN_RESTART_FRAC:
            continue
        for name, values in state.space.restart_remedies:
            for value in values[1:]:
                if _has_failed(state, name, value):
                    continue
                candidate = state.space.canonical(replace(outcome.candidate, **{name: value}))
                if candidate != outcome.candidate and state.is_open(candidate):
                    share = f"{100 * restarting_frac(m):.0f} %"
                    return candidate, f"workers of {describe(outcome.candidate)} start anew {share} of the time"
    return None


def _has_failed(state: State, name: str, value: Any) -> bool:
    """Whether a remedy failed with one candidate: what it asks of the script is the same with all."""
    return any(getattr(one.candidate, name) == value and one.failure is not None for one in state.outcomes.values())


def keeps_workers(state: State) -> bool:
    """Whether the best candidate's workers live on, so that other worker counts are tried with that, too."""
    best = cheapest(state.outcomes.values(), state.goal, state.space, state.noise)
    return best is not None and best.candidate.keep_workers


def _worth_a_remedy(state: State) -> list[Outcome]:
    best = cheapest(state.outcomes.values(), state.goal, state.space, state.noise)
    untuned = state.outcomes.get(baseline(state.space).key)
    return [outcome for outcome in (untuned, best) if outcome is not None and outcome.measurement is not None]
