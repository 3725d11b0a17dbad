"""Why candidates of the grid were not measured: each has its reason, and the run folder keeps them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pipetune.candidates.space import Space, canonical
from pipetune.records.sweep import Candidate, Goal, Measurement, Outcome
from pipetune.search.choice import as_listed
from pipetune.search.next_step import cannot_win
from pipetune.search.pooled import baseline, known, meets
from pipetune.search.probes import Seen, Settings, lead_of, outdone, settings_of, tune

NOT_REACHED = "not reached: the search was interrupted, or its budget was spent"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Candidates with one reason in common."""

    reason: str
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Backend:
    """What is known of all candidates of one backend."""

    settings: Settings
    points: dict[int, Measurement | None]
    """By worker count, with these settings; ``None``: it failed."""
    enough: tuple[int, ...]
    whole: str | None
    """Why none of its candidates is measured any more."""


def left_out(space: Space, outcomes: Sequence[Outcome], goal: Goal, *, ended: bool) -> tuple[LeftOut, ...]:
    """The candidates of the grid that have no outcome, by reason, in the order of the grid.

    Args:
        ended: the search came to its end; otherwise what was not measured was not reached.
    """
    seen = Seen(space, goal, known(outcomes, goal))
    measured = {key for key in seen.known} | {_in_grid(space, o.candidate).key for o in seen.known.values()}
    ranked = seen.by_probe({}) if ended else []
    chosen: Settings = tune(seen, lead_of(ranked))[0] if ranked else {}
    settings = settings_of(seen, ranked, chosen)
    backends = {name: _judge(seen, name, settings) for name in ranked}
    groups: dict[str, list[str]] = {}
    for candidate in space.grid():
        if candidate.key not in measured:
            reason = _reason(seen, candidate, backends.get(candidate.backend)) if ended else NOT_REACHED
            groups.setdefault(reason, []).append(candidate.key)
    return tuple(LeftOut(reason=reason, keys=tuple(keys)) for reason, keys in groups.items())


def _in_grid(space: Space, candidate: Candidate) -> Candidate:
    """The baseline stands for the point of the space that differs in pinned memory alone."""
    return as_listed(candidate, space) if candidate == baseline(space) else candidate


def _judge(seen: Seen, backend: str, settings: dict[str, Settings]) -> _Backend:
    points = seen.points(backend, settings[backend])
    measured = {count: m for count, m in points.items() if m is not None}
    beyond = max(points, default=0) > seen.probe(backend, settings[backend]).num_workers
    return _Backend(
        settings=settings[backend], points=points,
        enough=tuple(count for count, m in measured.items() if meets(m, seen.goal)),
        # Of one that came back because cores were idle, more than the probe was measured.
        whole=(None if beyond else outdone(seen, backend, settings)) or cannot_win(seen, backend, measured),
    )  # fmt: skip


def _reason(seen: Seen, candidate: Candidate, backend: _Backend | None) -> str:
    name, count = candidate.backend, candidate.num_workers
    if backend is None:
        probe = seen.known.get(seen.probe(name, {}).key) if seen.space.workers_of(name) else None
        kind = probe.failure.kind if probe and probe.failure else None
        return f"{name}: its probe failed ({kind})" if kind else f"{name}: none of its worker counts fits"
    if backend.whole is not None:
        return f"{name}: {backend.whole}"
    others = _other_settings(seen.space, candidate, backend.settings)
    if others is not None:
        return others
    failed = [tried for tried, m in backend.points.items() if m is None]
    if failed and count >= min(failed):
        return f"{name}: num_workers={min(failed)} failed"
    if count and count in backend.points:
        return "another prefetch depth is tried on the best candidate, and a deeper one where it may be needed"
    if backend.enough and count > min(backend.enough):
        return f"{name}: num_workers={min(backend.enough)} suffices, more cost more"
    if backend.enough and not count:
        return f"{name}: one worker falls short by more than none can make up for"
    if backend.enough:
        return f"{name}: more workers than that did not suffice"
    if count > max(backend.points):
        return f"{name}: beyond num_workers={max(backend.points)} more no longer gain"
    return f"{name}: not even num_workers={max(backend.points)} suffices"


def _other_settings(space: Space, candidate: Candidate, kept: Settings) -> str | None:
    """Which settings it has that were not kept; those that make no difference to it do not count."""
    usual = {name: values[0] for name, values in space.settings}
    same = canonical(replace(candidate, **{**usual, **kept})) if space.settings else candidate
    names = [
        f"{name} {getattr(candidate, name)}"
        for name, _ in space.settings
        if getattr(candidate, name) != getattr(same, name)
    ]
    return f"{', '.join(names)}: did not gain on a probe" if names else None
