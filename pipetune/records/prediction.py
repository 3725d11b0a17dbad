"""What ``pipetune whatif`` answers, and what a sweep expected of a candidate before it measured it."""

from __future__ import annotations

from dataclasses import dataclass

#: How far a prediction is from what was measured: between two measurements; one thing changed, to half or twice of what
#: was measured at most; anything else.
INTERPOLATED, ONE_FACTOR, EXTRAPOLATED = KINDS = ("interpolated", "one_factor", "extrapolated")
#: Raised when predictions are made in another way, so that their errors are not mixed.
MODEL_VERSION = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """What storage delivers, at most."""

    bytes_per_s: float | None = None
    """``None``: only requests are limited."""
    requests_per_s: float | None = None
    """Reads per second; ``None``: only bytes are limited."""
    name: str | None = None
    """The kind that was named; ``None``: figures were given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is to be different; ``None``: as it was measured."""

    cores: float | None = None
    workers: int | None = None
    """Of each rank."""
    disk: Disk | None = None
    """Files come from storage of this kind."""
    memory_bytes: int | None = None
    """Of the whole machine: what processes leave of it holds files that were read before."""
    device: str | None = None
    """The name of an accelerator with a published rate, or ``emulated:RATE``."""
    ranks: int | None = None
    image_size: int | None = None
    """Edge of the training crop (px)."""
    shorter_edge: int | None = None
    """Images whose shorter edge is longer are stored with this one (px)."""
    transforms: str | None = None
    """Images are augmented there: ``worker`` or ``device``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """A rate that was not measured."""

    samples_per_s: float
    """Of all ranks."""
    interval90: tuple[float, float]
    """As far as 90 % of earlier predictions of this kind were off."""
    demand_samples_per_s: float
    """What the accelerators take together."""
    bound_by: str
    """What sets the pace: ``accelerator``, ``cores``, ``workers``, ``hand_over`` or ``storage``."""
    next_bound_by: str | None
    """What would set it if that were lifted; ``None``: nothing else is known."""
    kind: str
    """One of :data:`KINDS`."""
    model_version: int = MODEL_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A prediction beside what was measured: of the question, or of the nearest one that this machine can be put to."""

    question: Question
    prediction: Prediction
    samples_per_s: float
    """Mean over the blocks."""
    ci95: tuple[float, float]
    """95 % confidence interval of it."""
    base_samples_per_s: float | None
    """What the prediction started from, measured anew in the same minutes; ``None``: it could not be."""
    error_frac: float
    """By which share the prediction is too high; below zero: too low."""
    machine_factor: float | None = None
    """The machine decodes that much faster now than when the run was measured, by a fixed loop beside each measurement
    and by the run's own loader, measured in between; ``prediction`` allows for it. ``None``: it is not known."""
    notes: tuple[str, ...] = ()
    """In which way it is not what was asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One question with its answer."""

    question: Question
    prediction: Prediction | None
    """``None``: it cannot be known."""
    refused: str | None = None
    """Why, in one line."""
    notes: tuple[str, ...] = ()
    """What it rests on."""
    check: Check | None = None
    not_checked: str | None = None
    """Why this machine cannot be put to it; ``None``: it was checked, or nobody asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """A change that would bring the target."""

    change: str
    """What to do, for a person."""
    prediction: Prediction


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """All answers about one loader."""

    candidate: str
    """Its key."""
    now: Prediction
    """As it was measured, for comparison: the model's own figure for what is known."""
    measured_samples_per_s: float
    """What was measured."""
    answers: tuple[Answer, ...]
    target: float
    """Share of the accelerator's rate that is wanted (0..1]."""
    reach: tuple[Reach, ...]
    """What would bring it; ``()``: it is there, or nothing known would."""
    own_errors: tuple[float, ...] = ()
    """By which share this run's own predictions of its candidates were too high, those that the loader limited."""
    notes: tuple[str, ...] = ()
