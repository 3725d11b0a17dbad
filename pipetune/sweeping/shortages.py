"""What the machine had too little of, from the candidates that were left out. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from pipetune.records.shortage import Shortage
from pipetune.records.sweep import Candidate, Failure


def find_shortages(does_not_fit: Sequence[tuple[Candidate, Failure]]) -> tuple[Shortage, ...]:
    """One for each resource that is short, in the order of their first candidate."""
    groups: dict[str, list[Failure]] = {}
    for _, failure in does_not_fit:
        groups.setdefault(failure.kind, []).append(failure)
    return tuple(_shortage(kind, failures) for kind, failures in groups.items())


def _shortage(kind: str, failures: Sequence[Failure]) -> Shortage:
    needed = [failure.needed for failure in failures if failure.needed is not None]
    largest = max(failures, key=lambda failure: failure.needed or 0)
    return Shortage(
        kind=kind,
        candidates=len(failures),
        least_needed=min(needed, default=None),
        most_needed=max(needed, default=None),
        available=largest.available,
        remedy=largest.hint,
    )
