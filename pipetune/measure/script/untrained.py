"""A script that took batches and ended before its training was recognised: how far it came, in words. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipetune.measure.script.joined import describe_too_few
from pipetune.measure.script.last_error import shorten_path
from pipetune.measure.script.protocol import WITHOUT_OPTIMIZER

#: What serves a script that is meant to evaluate.
_FOR_EVALUATION = (
    "start it as it trains (without --evaluate, say); for an evaluation, pipetune watch -- COMMAND names what it waits "
    "for, and pipetune sweep --loader MODULE:FUNCTION tunes its loader"
)


@dataclass(frozen=True, slots=True)
class Untrained:
    """What one process of the script counted until it ended."""

    steps: int
    """Steps of torch's optimizers."""
    backward: int
    """Calculations of gradients."""
    batches: int
    """Batches that were taken with gradients enabled, of the loader that gave the most."""
    evaluated: int
    """Batches of that loader that were taken with gradients disabled."""
    elsewhere: bool
    """JAX, TensorFlow or another framework is loaded, of whose training nothing is heard."""
    where: str | None
    """``FILE:LINE`` at which that loader was made; ``None``: it is not known."""

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> Untrained:
        """What a message ``untrained`` says."""
        numbers = {name: int(message.get(name) or 0) for name in ("steps", "backward", "batches", "evaluated")}
        return cls(**numbers, elsewhere=bool(message.get("elsewhere")), where=message.get("where"))

    @property
    def progress(self) -> tuple[int, int, int, int]:
        """The greater, the further a process came."""
        return self.steps, self.backward, self.batches, self.evaluated


def describe_untrained(untrained: Untrained, folder: str) -> tuple[str, str | None]:
    """Why nothing was measured, and what to do; ``None``: the reason says it.

    Args:
        folder: places below it are stated from there.
    """
    count = untrained.batches + untrained.evaluated
    loader = "of a loader" if untrained.where is None else f"of the loader at {shorten_path(untrained.where, folder)}"
    batches = f"{count} batch{'es' * (count != 1)} {loader}"
    if untrained.steps and untrained.batches:
        return describe_too_few(untrained.batches), None
    if untrained.steps:
        return (
            f"the script does not train on its loaders: it took {batches} with gradients disabled, and its "
            f"{untrained.steps} optimizer step{'s' * (untrained.steps != 1)} used no batch of them"
        ), "pipetune watch -- COMMAND names what it waits for"
    if untrained.backward or untrained.elsewhere:
        gradients = " and computed gradients" if untrained.backward else ""
        return (
            f"the script took {batches}{gradients}, but no optimizer of torch's stepped; without one, a training is "
            f"recognised after {WITHOUT_OPTIMIZER} batches in a row"
        ), "use more data or --epochs"
    return (
        f"the script evaluates and does not train: it took {batches}, computed no gradients, and no optimizer stepped"
    ), _FOR_EVALUATION
