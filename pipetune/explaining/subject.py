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
    """``index_path`` is that of the sweep; of a data set it is empty, and the index is still to be written."""
    images: ImageSet
    usable_cores: float
    swept: tuple[Outcome, ...] = ()
    """What the sweep has measured."""
    notes: tuple[str, ...] = ()
    loader: bytes | None = None
    """The user's own loader's name, packed for each child; ``None``: it is in the sweep's folder, or there is none."""
