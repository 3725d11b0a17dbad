"""The indices of a training epoch, handed to one loader after another. Pure.

A loader with workers takes indices ahead of the batches that it has delivered. When another one takes its place, what
was handed out and not delivered comes first, so that no sample is lost and none comes twice.

An epoch has as many batches as its sampler has indices, whatever happens within it: for each kept batch that the loop
gets instead of a loaded one, indices are left out, of those that no loader has taken as long as there are any.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any


class IndexStream:
    """An iterator over a sampler, one epoch after the other, each of which :meth:`begin` begins.

    Args:
        sampler: what the loader draws its indices from: its batch sampler, or its sampler where it does not collate.
    """

    def __init__(self, sampler: Iterable[Any]) -> None:
        self._sampler = sampler
        self._epoch: Iterator[Any] | None = None
        self._out: deque[Any] = deque()
        self._again: deque[Any] = deque()
        self._left_out = 0
        """So many of the newest that were handed out are not delivered: kept batches took their place."""
        self.allowed: int | None = None
        """So many further indices are handed out, then a loader ends with what it has. ``None``: all are."""

    def begin(self) -> None:
        """Another epoch begins; what is left of the one before is dropped."""
        self._epoch, self._left_out = None, 0
        self._out.clear()
        self._again.clear()

    def __iter__(self) -> IndexStream:
        if self._epoch is None:
            self._epoch = iter(self._sampler)
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
        for _ in range(min(self._left_out, len(self._again))):
            self._again.pop()
        self._left_out = 0

    def drained(self) -> int:
        """The loader has delivered all that it had, in whatever order; returns how many of them are left out."""
        left_out, self._left_out = self._left_out, 0
        self._out.clear()
        self.allowed = None
        return left_out

    def leave_out(self) -> bool:
        """Leave out one batch of the epoch; whether there was one."""
        try:
            self._from_sampler()
        except StopIteration:
            if self._again:
                self._again.pop()
            elif len(self._out) > self._left_out:
                self._left_out += 1
            else:
                return False
        return True

    @property
    def leaves_out(self) -> bool:
        """Batches that were begun are left out, so that the loader has to be ended before its own end."""
        return self._left_out > 0

    def has_more(self) -> bool:
        """Whether the epoch has batches that were not delivered."""
        if self._again or len(self._out) > self._left_out:
            return True
        if self._left_out:
            return False  # the sampler had ended when they were left out
        try:
            self._again.append(self._from_sampler())
        except StopIteration:
            return False
        return True

    def _from_sampler(self) -> Any:
        if self._epoch is None:
            self._epoch = iter(self._sampler)
        return next(self._epoch)
