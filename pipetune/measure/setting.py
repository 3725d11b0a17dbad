"""What goes into a measurement besides the candidate, and what comes out while it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipetune.records.sweep import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """What is known of the running candidate right now."""

    phase: str
    samples_per_s: float | None = None
    idle_frac: float | None = None
    data_wait_frac: float | None = None
    images_done: int | None = None
    """Of the images that are being tried one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What stays the same for all candidates of a sweep."""

    workload: Workload
    paths: Sequence[str]
    """The images' files, whose page cache is equalised."""
    cores: frozenset[int]
    """Cores that this process may run on."""
    timeout_s: float | None = None
    """Limit for one child; ``None``: from the workload."""
    interval_s: float = 0.1
