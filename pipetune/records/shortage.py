"""What a machine had too little of, so that candidates were left out."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """Candidates that were left out because the machine lacks one thing that they need."""

    kind: str
    """``lacks_shared_memory``, ``lacks_memory`` or ``lacks_open_files`` (:mod:`pipetune.candidates.fit`)."""
    candidates: int
    """How many were left out."""
    least_needed: int | None
    """What the smallest of them needs: bytes, or a number of open files; ``None``: an earlier version measured."""
    most_needed: int | None
    """What the largest of them needs, in the same unit."""
    available: int | None
    """What there was, in the same unit."""
    remedy: str | None
    """What to do so that all of them can be measured."""
