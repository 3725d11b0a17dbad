"""Which of a script's loaders is trained on: an optimizer steps between two requests for its batches. Pure.

Loops that evaluate take batches without a step between them. A loop that accumulates gradients steps once in several
batches, one with mixed precision twice for one: only "at least one" is asked. Where no optimizer of torch's ever steps
(some libraries have classes of their own), a loader is taken for the one if gradients were computed after so many of
its batches that it can hardly be an evaluation. Of frameworks other than torch nothing is heard: their batches count as
if gradients had been computed. In a pass over the data before the training, for the mean of the pixels, none are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pipetune.measure.script.protocol import WITHOUT_OPTIMIZER

#: So many steps, each after a batch of the same loader and before its next one, show that it is trained on.
CONFIRMATIONS = 3


@dataclass(slots=True)
class _Seen:
    confirmed: int = 0
    asked: int = 0
    steps_before: int = 0
    backward_before: int = 0
    with_gradients: int = 0
    taken: int = 0
    """Batches that were taken with gradients enabled."""
    evaluated: int = 0
    """Batches that were taken without."""
    where: str | None = None


class WhichTrains:
    """Counts requests for batches and optimizer steps."""

    def __init__(self) -> None:
        self._loaders: dict[int, _Seen] = {}
        self._steps = 0
        self._backward = 0
        self._last: int | None = None

    def took(self, loader: int, *, gradients: bool, where: str | None) -> None:
        """A batch of a loader was taken.

        Args:
            where: the place at which the loader was made; ``None``: it is not known.
        """
        seen = self._loaders[loader]
        seen.taken += gradients
        seen.evaluated += not gradients
        seen.where = where

    def describe(self) -> dict[str, Any]:
        """How far a script came whose training was not recognised.

        Returns:
            ``steps`` and ``backward``, the optimizer steps and calculations of gradients so far; of the loader with
            the most batches ``where`` it was made, its ``batches`` with gradients enabled, and the number ``evaluated``
            without.
        """
        most = max(self._loaders.values(), key=lambda seen: (seen.taken, seen.evaluated), default=_Seen())
        return {
            "steps": self._steps,
            "backward": self._backward,
            "where": most.where,
            "batches": most.taken,
            "evaluated": most.evaluated,
        }

    def stepped(self) -> None:
        """An optimizer has made a step."""
        self._steps += 1

    def computed_gradients(self) -> None:
        """Torch has computed gradients."""
        self._backward += 1

    def asked(self, loader: int, *, gradients: bool, elsewhere: bool = False, first: bool = False) -> bool:
        """A batch of a loader is asked for; returns whether it is known to be trained on.

        Args:
            loader: its number, whatever it is.
            gradients: gradients are enabled at this moment.
            elsewhere: another framework may have computed some, of which nothing is heard.
            first: it is the first of an epoch, so that steps since the one before may be those of another loader.
        """
        seen = self._loaders.setdefault(loader, _Seen(steps_before=self._steps, backward_before=self._backward))
        if seen.asked and not first and self._steps > seen.steps_before:
            seen.confirmed += 1
        alone = self._last in (None, loader) and gradients and self._steps == 0
        counts = (elsewhere and seen.asked > 0) or self._backward > seen.backward_before
        seen.with_gradients = seen.with_gradients + counts if alone else 0
        seen.asked += 1
        seen.steps_before, seen.backward_before, self._last = self._steps, self._backward, loader
        return seen.confirmed >= CONFIRMATIONS or seen.with_gradients >= WITHOUT_OPTIMIZER

    def trained_on(self) -> list[int]:
        """Numbers of the loaders between whose batches an optimizer has stepped, the first asked for first.

        One confirmation is enough here: of two loaders that every step takes a batch of, the second is one behind.
        """
        return [number for number, seen in self._loaders.items() if seen.confirmed]
