"""The indices of a training epoch, handed to one loader after another. Pure.

A loader with workers takes indices ahead of the batches that it has delivered. When another one takes its place, what
was handed out and not delivered comes first, so that no sample is lost and none comes twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any


class IndexStream:
    """An iterator over a sampler, one epoch after the other.

    Args:
        sampler: what the loader draws its indices from: its batch sampler, or its sampler where it does not collate.
    """

    def __init__(self, sampler: Iterable[Any]) -> None:
        self._sampler = sampler
        self._epoch: Iterator[Any] | None = None
        self._out: deque[Any] = deque()
        self._again: deque[Any] = deque()
        self.endless = False
        """When an epoch's indices end, those of another begin; and to iterate anew goes on where it was."""
        self.allowed: int | None = None
        """So many further indices are handed out, then a loader ends with what it has. ``None``: all are."""

    def __iter__(self) -> IndexStream:
        if not self.endless:
            self._epoch = iter(self._sampler)
            self._out.clear()
            self._again.clear()
        return self

    def __next__(self) -> Any:
        if self.allowed is not None:
            if not self.allowed:
                raise StopIteration
            self.allowed -= 1
        indices = self._again.popleft() if self._again else self._from_sampler()
        self._out.append(indices)
        return indices

    def __len__(self) -> int:
        return len(self._sampler)  # type: ignore[arg-type]  # where the sampler has none, nor has the loader

    def __getattr__(self, name: str) -> Any:
        if name == "_sampler":  # while it is being copied
            raise AttributeError(name)
        return getattr(self._sampler, name)  # set_epoch and the like, which frameworks call on it

    def delivered(self) -> None:
        """The loader has delivered the batch of the oldest indices."""
        if self._out:
            self._out.popleft()

    def take_back(self) -> None:
        """The loader ends: what it has not delivered is handed out again, first and in the same order."""
        self._again.extendleft(reversed(self._out))
        self._out.clear()

    def drained(self) -> None:
        """The loader has delivered all that it had, in whatever order."""
        self._out.clear()
        self.allowed = None

    def _from_sampler(self) -> Any:
        if self._epoch is None:
            self._epoch = iter(self._sampler)
        try:
            return next(self._epoch)
        except StopIteration:
            if not self.endless:
                raise
            self._epoch = iter(self._sampler)
            return next(self._epoch)
