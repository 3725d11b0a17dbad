"""How long the next measurement of a sweep will take, from those before it. Pure.

On a GPU most of it is set-up: the device's context, the model, its first steps. Every candidate pays that, in a fork of
a process that has imported torch as well as in a new process, which pays for its start and its imports besides. So what
a kind of process took before it could ask the device is exchanged for what the other kind takes, and the rest counts as
it was measured (:class:`pipetune.records.set_up.SetUp`).
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from pipetune.records.sweep import Outcome

#: Time that a measurement takes before any was made, its start left out: 1.5 s of timed phase on an emulated device
#: (benchmarks/search/worlds.py) (s).
USUAL_S = 4.4
#: Start and imports of a fork, and of a new process, before one of the kind was measured (benchmarks/search/worlds.py)
#: (s).
USUAL_START_S = {True: 0.1, False: 5.1}


def expected_times_s(outcomes: Sequence[Outcome], *, forked: bool, new_start_s: float | None = None) -> list[float]:
    """Wall times that the next measurement may have, one for each that was like it (s); at least one.

    Candidates of its kind count, in a fork or in a new process. Where there is none, the other kind does; where no
    candidate was measured, the ceilings do, which are set up as candidates are. A failed one says nothing: some fail in
    their first second, others when their time is over.

    Args:
        outcomes: of this sweep until now, the ceilings among them.
        forked: whether the next one gets a fork, or the running script.
        new_start_s: start and imports of a new process, before one was measured; ``None``: :data:`USUAL_START_S`.
    """
    measured = [outcome for outcome in outcomes if outcome.measurement is not None]
    candidates = [outcome for outcome in measured if outcome.role != "ceiling"]
    alike = [outcome.wall_s for outcome in candidates if outcome.forked is forked]
    if alike:
        return alike
    starts_s = {kind: _start_s(outcomes, forked=kind, new_start_s=new_start_s) for kind in (True, False)}
    others = candidates or measured
    if not others:
        return [USUAL_S + starts_s[forked]]
    return [max(0.0, outcome.wall_s - _likely_start_s(outcome, starts_s)) + starts_s[forked] for outcome in others]


def _start_s(outcomes: Sequence[Outcome], *, forked: bool, new_start_s: float | None) -> float:
    """Start and imports of a kind of process (s).

    A fork's is the usual one: the first fork was measured while its server still imported torch, which no other does.
    """
    if forked:
        return USUAL_START_S[True]
    measured = [_measured_start_s(outcome) for outcome in outcomes if not outcome.forked]
    known = [seconds for seconds in measured if seconds is not None]
    if known:
        return median(known)
    return USUAL_START_S[False] if new_start_s is None else new_start_s


def _likely_start_s(outcome: Outcome, starts_s: dict[bool, float]) -> float:
    """Its start and imports (s); where they were not measured, no larger a part of it than is usual."""
    measured = _measured_start_s(outcome)
    if measured is not None:
        return measured
    start_s = starts_s[outcome.forked]
    return min(start_s, outcome.wall_s * start_s / (start_s + USUAL_S))


def _measured_start_s(outcome: Outcome) -> float | None:
    stages = None if outcome.measurement is None else outcome.measurement.set_up
    if stages is None or stages.start_s is None:
        return None
    return stages.start_s + (stages.import_s or 0.0)
