"""What ranks and hosts that are measured at the same time did, each by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RankShare:
    """What one of several ranks did in the time in which all of them were timed."""

    rank: int
    samples_per_s: float
    goodput: float | None
    """``samples_per_s`` / this rank's own max ingestion rate; ``None`` for the ceiling itself."""
    data_wait_frac: float
    """Share of the time in which its training loop was blocked in ``next(loader)``."""
    accelerator_idle_frac: float
    """Share of the time in which its accelerator had no batch to run on."""
    others_wait_frac: float
    """Share of the time in which its accelerator waited for the other ranks to compute the same step."""
    gpu_util_pct: float | None = None
    """As :attr:`pipetune.records.sweep.Measurement.gpu_util_pct`, of its own accelerator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostShare:
    """What one of several hosts did, each of which measured the same candidate at the same time."""

    host: int
    """Its number, from 0."""
    name: str
    samples_per_s: float
    """Of all ranks on it."""
    ci95: tuple[float, float]
    goodput: float | None
    """Of its slowest rank; ``None`` for the ceiling itself."""
    data_wait_frac: float
    """Share of the timed phase in which its training loops were blocked in ``next(loader)``."""
    accelerator_idle_frac: float
    """Share of the timed phase in which its accelerators had no batch to run on."""
    cores_used: float | None
    """Cores that loading takes on it."""
    read_bytes_per_s: float | None
    """Fetched from storage by it."""
    together_frac: float
    """Share of its timed phase in which all hosts were timed."""


def slowest_host(hosts: Sequence[HostShare]) -> HostShare:
    """The one that decides: with the lowest goodput, or rate where there is none."""
    return min(hosts, key=lambda share: share.samples_per_s if share.goodput is None else share.goodput)
