"""What the user wants of a sweep, and why a candidate falls short of it."""

from __future__ import annotations

from dataclasses import dataclass

#: The effort of a search that probes every backend and looks for any saving.
THOROUGH = "thorough"


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What the user wants of a sweep."""

    target: float
    """Share to reach (0..1]."""
    metric: str
    """``goodput``: of the max ingestion rate; ``nvml``: GPU utilisation / 100."""
    cheapest: tuple[str, ...] = ("accelerator", "cores", "memory", "pixels")
    """What costs, the dearest first: names of :data:`pipetune.search.costs.CRITERIA`."""
    most_memory_bytes: int | None = None
    """What takes more (PSS) is not recommended; ``None``: no limit."""
    effort: str = THOROUGH
    """How far the search goes: a name of :data:`pipetune.search.effort.EFFORTS`. All searches of earlier versions were
    thorough."""
    settled_blocks: int = 0
    """Blocks up to this number compared the best candidates before the sweep was resumed with other options. What was
    measured in them counts; what they decided is open again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """One cause, with its evidence and the thing to do about it."""

    cause: str
    """One of the constants of :mod:`pipetune.diagnosis.causes`."""
    lost_frac: float
    """Share of the accelerator's time that is lost (0..1)."""
    sentence: str
    """The cause in words."""
    evidence: tuple[str, ...]
    """The figures that it rests on."""
    advice: str | None
    """What to change; ``None``: nothing about the input pipeline."""
    missing: tuple[str, ...] = ()
    """Signals that would have made it surer."""
