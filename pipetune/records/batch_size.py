"""What ``pipetune batch-size`` finds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPoint:
    """One batch size: of a model measured in a process of its own, of a script in a few starts of it."""

    batch_size: int
    samples_per_s: float | None
    """On batches that are loaded already; ``None``: it failed."""
    peak_bytes: int | None
    """Most memory that torch reserved on the device; ``None``: it failed."""
    allocated_bytes: int | None = None
    """Most of it that tensors took at a time; ``None``: it failed, or an earlier version measured."""
    failure: str | None = None
    """Why it failed, in a sentence."""
    out_of_memory: bool = False
    checkpointing: bool = False
    """Activations were computed again in the backward pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptBatches:
    """The training script whose batch size was looked for."""

    command: tuple[str, ...]
    """As it was started; ``***`` stands for what looks like a secret."""
    own: int
    """Its own batch size."""
    where: str | None = None
    """``FILE:LINE`` of the call that makes its loader."""
    option: str | None = None
    """Its own option for the batch size, in its long form; ``None``: none can be told from its text."""
    ranks: int = 1
    """Training processes, each with batches of this size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSizes:
    """The largest batch that fits, and the smallest that is as fast."""

    model: str
    """A torchvision classifier; of a script its file."""
    image_size: int | None
    """Edge of the crops (px); ``None``: the script's own."""
    precision: str
    compiled: bool = False
    """``torch.compile`` has compiled the model."""
    device: str
    total_bytes: int
    """Memory of the device."""
    limit_bytes: int
    """What a step may take of it, other processes and the device's own share left out."""
    predicted_largest: int
    """By fake tensors alone, before anything was measured; of a script by its first two batch sizes."""
    largest: int | None
    """The largest that fits; ``None``: none that was measured does."""
    knee: int | None
    """The smallest whose rate is near the best: what is recommended. ``None``: as above."""
    points: tuple[BatchPoint, ...]
    """In the order of measurement."""
    fixed_bytes: float | None
    """Memory that any batch takes, by the line through what was measured; ``None``: fewer than two fit."""
    bytes_per_sample: float | None
    """Memory for each sample of a batch, by the same line."""
    checkpointed_largest: int | None = None
    """The largest that fits with activation checkpointing; ``None``: none does, or it was not tried."""
    script: ScriptBatches | None = None
    """``None``: the model is a torchvision classifier."""
    stopped: str | None = None
    """Why it did not come to its end."""
    notes: tuple[str, ...] = ()
