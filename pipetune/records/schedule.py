"""What ``pipetune schedule`` finds of a training whose images grow."""

from __future__ import annotations

from dataclasses import dataclass

from pipetune.records.prediction import Prediction


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Loader workers, and images stored with a shorter edge."""

    workers: int
    """Of each rank."""
    shorter_edge: int | None
    """Images are packed with this shorter edge (px); ``None``: they are as they are."""
    mean_bytes: float | None
    """Of a file; ``None``: it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """Epochs with crops of one size."""

    image_size: int
    """Edge of the crops (px)."""
    epochs: float
    demand_samples_per_s: float
    """What the accelerators take together."""
    demand_bytes_per_s: float | None
    """The same of files as they are; ``None``: their size is not known."""
    now: Prediction
    """With the loader as it was measured."""
    setup: Setup | None
    """The one of all phases, or else the least that suffices here; ``None``: nothing that was considered does."""
    best: Prediction
    """With ``setup``, or with what comes closest where there is none."""
    closest: Setup
    """What ``best`` is of."""
    seconds: float | None
    """Of the whole phase with ``best``; ``None``: the number of images is not known."""
    cost: float | None
    """``None``: no price was given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The whole training."""

    about: str
    """What is trained on what, in words."""
    source: str
    """The data set, for the command that packs it."""
    ranks: int
    """Training processes, each with as many workers."""
    candidate: str
    """Key of the loader that was measured."""
    phases: tuple[Phase, ...]
    target: float
    """Share of the accelerators' rate that suffices."""
    images: int | None
    """Of an epoch."""
    common: Setup | None
    """One setup that suffices for all phases; ``None``: there is none."""
    edges: tuple[int, ...]
    """Shorter edges of the packs that the phases' setups need, the smallest first."""
    seconds: float | None
    """Of all phases."""
    cost: float | None
    currency: str = ""
    notes: tuple[str, ...] = ()
