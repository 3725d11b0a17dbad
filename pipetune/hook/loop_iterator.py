"""The iterator that a training loop gets while we measure: it asks the session for each batch.

It is one of torch's iterators by class, and hands on every attribute that it does not have, because some loaders look
at their iterator's ``_workers``, and persistent ones call its ``_reset``.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, Protocol


class Batches(Protocol):
    """Who makes the batches of a loop's iterator."""

    def next(self) -> Any:
        """The next batch; raises StopIteration at an epoch's end."""

    def reset(self, loader: Any) -> None:
        """A loader whose workers live on begins another epoch."""

    @property
    def inner(self) -> Any:
        """torch's own iterator, at this moment."""


def iterator_class(module: ModuleType) -> Callable[[Batches], Any]:
    """The class, made of the module ``torch.utils.data.dataloader``."""
    base: Any = module._BaseDataLoaderIter

    class LoopIterator(base):
        """See the module."""

        def __init__(self, batches: Batches) -> None:
            self._pipetune = batches

        def __iter__(self) -> LoopIterator:
            return self

        def __next__(self) -> Any:
            return self._pipetune.next()

        def __len__(self) -> int:
            return len(self._pipetune.inner)

        def _reset(self, loader: Any, first_iter: bool = False) -> None:
            self._pipetune.reset(loader)

        def __getattr__(self, name: str) -> Any:
            if name == "_pipetune":  # while it is being made, or copied
                raise AttributeError(name)
            return getattr(self._pipetune.inner, name)

    return LoopIterator
