"""Why candidates of the grid were not measured. Pure; the run folder keeps the reasons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pipetune.candidates.space import Space
from pipetune.records.sweep import Candidate, Goal, Measurement, Outcome
from pipetune.registry import find_backend
from pipetune.search.choice import as_in_space
from pipetune.search.effort import enough
from pipetune.search.pooled import baseline, meets
from pipetune.search.pruning import cannot_win, dominated
from pipetune.search.state import Chosen, State
from pipetune.search.tuning import lead_of, settings_of, tune, untried_of

NOT_REACHED = "not reached: the search was interrupted, or its time was over"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Candidates with one reason in common."""

    reason: str
    """Why they were not measured."""
    keys: tuple[str, ...]
    """Their keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Backend:
    """What the candidates of one backend have in common."""

    settings: Chosen
    points: dict[int, Measurement | None]
    """Worker count -> measurement with these settings; ``None``: it failed."""
    enough: tuple[int, ...]
    """Sufficient worker counts."""
    whole: str | None
    """Why all of its candidates are left out; ``None``: they have reasons of their own."""


def left_out(space: Space, outcomes: Sequence[Outcome], goal: Goal, *, ended: bool) -> tuple[LeftOut, ...]:
    """The candidates of the grid that have no outcome, by reason, in the order of the grid.

    Args:
        ended: whether the search is done; if not, candidates without an outcome were not reached.
    """
    state = State.after(space, goal, outcomes)
    measured = {key for key in state.outcomes} | {_in_grid(space, o.candidate).key for o in state.outcomes.values()}
    lead = lead_of(state) if ended else None
    chosen = {} if lead is None else tune(state, lead)[0]
    settings = {} if lead is None else settings_of(state, chosen)
    backends = {name: _judge(state, name, settings) for name in settings}
    whole = enough(state, lead, chosen, untried_of(state, lead)) if ended else NOT_REACHED
    groups: dict[str, list[str]] = {}
    for candidate in space.grid():
        if candidate.key not in measured:
            reason = whole or _reason(state, candidate, backends.get(candidate.backend), lead)
            groups.setdefault(reason, []).append(candidate.key)
    return tuple(LeftOut(reason=reason, keys=tuple(keys)) for reason, keys in groups.items())


def _in_grid(space: Space, candidate: Candidate) -> Candidate:
    """The candidate itself; for the baseline, the one of the grid that differs from it in pinned memory alone."""
    return as_in_space(candidate, space) if candidate == baseline(space) else candidate


def _judge(state: State, backend: str, settings: dict[str, Chosen]) -> _Backend:
    points = state.points(backend, settings[backend])
    measured = {count: m for count, m in points.items() if m is not None}
    beyond = max(points, default=0) > state.probe(backend, settings[backend]).num_workers
    return _Backend(
        settings=settings[backend], points=points,
        enough=tuple(count for count, m in measured.items() if meets(m, state.goal)),
        # A dominated backend that came back because cores were idle has more measurements than its probe.
        whole=(None if beyond else dominated(state, backend, settings)) or cannot_win(state, backend, measured),
    )  # fmt: skip


def _reason(state: State, candidate: Candidate, backend: _Backend | None, lead: str | None) -> str:
    name, count = candidate.backend, candidate.num_workers
    if backend is None:
        probe = state.outcomes.get(state.probe(name, {}).key) if state.space.workers_of(name) else None
        kind = probe.failure.kind if probe and probe.failure else None
        if lead is not None and probe is None and state.space.workers_of(name):
            times = find_backend(name).usual_cost / find_backend(lead).usual_cost
            return f"{name}: it usually takes {times:.1f} times the CPU time of {lead} per image"
        return f"{name}: its probe failed ({kind})" if kind else f"{name}: none of its worker counts fits"
    if backend.whole is not None:
        return f"{name}: {backend.whole}"
    others = _other_settings(state.space, candidate, backend.settings)
    if others is not None:
        return others
    failed = [tried for tried, m in backend.points.items() if m is None]
    if failed and count >= min(failed):
        return f"{name}: num_workers={min(failed)} failed"
    if count and count in backend.points:
        return "other prefetch depths are tried on the best candidate only"
    if backend.enough and count > min(backend.enough):
        return f"{name}: num_workers={min(backend.enough)} is sufficient, and more cost more"
    if backend.enough and not count:
        return f"{name}: one worker misses the target by more than loading without workers gains"
    if backend.enough:
        return f"{name}: more workers than that were not sufficient"
    if count > max(backend.points):
        return f"{name}: more than num_workers={max(backend.points)} no longer gain"
    return f"{name}: not even num_workers={max(backend.points)} is sufficient"


def _other_settings(space: Space, candidate: Candidate, kept: Chosen) -> str | None:
    """The settings in which it differs from those that were kept; ``None``: in none that has an effect."""
    defaults = {name: values[0] for name, values in space.settings}
    same = space.canonical(replace(candidate, **{**defaults, **kept})) if space.settings else candidate
    names = [
        f"{name} {getattr(candidate, name)}"
        for name, _ in space.settings
        if getattr(candidate, name) != getattr(same, name)
    ]
    return f"{', '.join(names)}: did not gain on a probe" if names else None
