"""What ``pipetune scale`` knows: rates over numbers of accelerators and hosts, what a training takes, accuracy."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleRow:
    """One number of accelerators."""

    accelerators: int
    """In all hosts together."""
    hosts: int
    measured: bool
    """``False``: predicted."""
    samples_per_s: float
    """Of all accelerators together."""
    interval: tuple[float, float] | None
    """Of the rate: 95 % where it was measured, 90 % where it was predicted; ``None``: it is not known."""
    efficiency: float | None
    """The rate / (accelerators x the rate of one); ``None``: one alone is not known."""
    efficiency_in_host: float | None
    """The same of one host, with as many accelerators as each has; ``None``: it is not known."""
    efficiency_across_hosts: float | None
    """The rate / (hosts x the rate of one host); 1 with one host, ``None``: one host alone is not known."""
    bytes_per_s_per_host: float | None
    """Bytes of files that each host reads per second, from memory or storage; ``None``: their size is not known."""
    compute_frac: float | None = None
    """Share of the time in which an accelerator computes; ``None``: it is not known."""
    idle_frac: float | None = None
    """Share of the time in which an accelerator has no batch to run on."""
    others_wait_frac: float | None = None
    """Share of the time in which an accelerator waits for the slowest one, to end the same step."""
    communication_frac: float | None = None
    """Share of the time by which more hosts make a step longer, besides waiting for the slowest; ``None``: no run
    across hosts was measured."""
    epoch_s: float | None = None
    """``None``: the number of images is not known."""
    training_s: float | None = None
    """``None``: the number of epochs was not given."""
    epoch_cost: float | None = None
    """At the price of all hosts; ``None``: no price was given."""
    training_cost: float | None = None
    spot_training_s: float | None = None
    """Expected time on hosts that can be taken away, with what is computed again and waited for; ``None``: no price of
    such hosts was given."""
    spot_training_cost: float | None = None
    source: str = ""
    """Where it was measured, or what it was predicted from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Accuracy, or another metric, over the time of one training."""

    name: str
    """The file."""
    metric: str
    """Name of the column."""
    accelerators: int | None
    """That trained; ``None``: it was not stated."""
    times_s: tuple[float, ...]
    """Since the training began, in their order."""
    values: tuple[float, ...]
    from_first: bool = False
    """Its times are clock times, which count from its first line: what came before is not in them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeTo:
    """When a training reached a value."""

    curve: str
    """Name of the curve."""
    accelerators: int | None
    value: float
    reached_s: float | None
    """Since the training began: the first evaluation that shows it; ``None``: it was never reached."""
    cost: float | None
    """``None``: no price was given, or the hosts are not known."""
    samples_per_s: float | None
    """Of the row with as many accelerators; ``None``: there is none."""
    measured: bool = True
    """``False``: that row is predicted."""
    falls: bool = False
    """Less is better: it was reached with a value that is as small, or smaller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """Everything that ``pipetune scale`` found."""

    about: str
    """What was trained on which accelerators, in words; ``""``: the runs do not say."""
    rows: tuple[ScaleRow, ...]
    """By the number of accelerators."""
    accelerators_per_host: int
    images: int | None
    """Of an epoch."""
    epochs: float | None
    per_hour: float | None
    """Price of a host."""
    spot_per_hour: float | None
    currency: str = ""
    curves: tuple[Curve, ...] = ()
    times_to: tuple[TimeTo, ...] = ()
    notes: tuple[str, ...] = ()
    """What the figures rest on, and what is not in them."""
