"""What is explained: a loader, on this machine. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from pipetune.datasets.index import ImageSet
from pipetune.records.sweep import Candidate, Outcome, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is explained, on this machine."""

    candidate: Candidate
    workload: Workload
    """Its ``index_path`` is of no matter: the index is written into the run folder of the explanation."""
    images: ImageSet
    usable_cores: float
    swept: tuple[Outcome, ...] = ()
    """What the sweep has measured."""
    notes: tuple[str, ...] = ()
    loader: bytes | None = None
    """The user's own loader's name, packed for each child; ``None``: it is in the sweep's folder, or there is none."""
