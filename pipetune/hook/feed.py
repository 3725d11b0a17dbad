"""What the iterators of a training loop ask for batches: before, while and beside the loader that is measured."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from pipetune.hook.built import BuiltSource
from pipetune.hook.relay import Relay
from pipetune.hook.source import Source


class Measuring(Protocol):
    """Knows which loader is trained on."""

    trained: Feed | None
    """The loader that is measured, once it is known."""

    def trains(self, feed: Feed, *, first: bool) -> bool:
        """Whether the loader that asks for a batch is known to be trained on."""

    def begin(self, feed: Feed) -> Relay | None:
        """It is: from now on it is measured; ``None``: it cannot be."""


class Feed:
    """What a loop's iterator asks: at first it only looks on, and from when training is recognised it measures."""

    def __init__(self, session: Measuring, loader: Any, source: Source | BuiltSource) -> None:
        self._session, self.loader, self.source = session, loader, source
        self.relay: Relay | None = None
        self._first = True

    @property
    def inner(self) -> Any:
        """See :class:`pipetune.hook.loop_iterator.Batches`."""
        return self.source.inner

    def next(self) -> Any:
        """See :class:`pipetune.hook.loop_iterator.Batches`."""
        if self.relay is None and self._session.trained is None and self._session.trains(self, first=self._first):
            self.relay = self._session.begin(self)
        self._first = False
        if self.relay is not None:
            return self.relay.next()
        measured = self._session.trained
        try:
            return self.source.next() if measured is None else measured.beside(self.source.next)
        except StopIteration:
            self._first = True
            raise

    def reset(self, loader: Any) -> None:
        """See :class:`pipetune.hook.loop_iterator.Batches`."""
        self._first = True
        if self.relay is None:
            self.source.reset()
        else:
            self.relay.epoch()

    def beside(self, take: Callable[[], Any]) -> Any:
        """Take a batch of another loader while this one is measured."""
        began = time.monotonic_ns()
        try:
            return take()
        finally:
            if self.relay is not None:
                self.relay.waited_for_others(time.monotonic_ns() - began)

    def again(self) -> None:
        """The loop iterates anew over the loader that is measured."""
        assert self.relay is not None
        self.relay.epoch()


class Other:
    """What the iterator of another loader asks while one is measured: an evaluation, or a second loader to train on."""

    def __init__(self, measured: Feed, inner: Any) -> None:
        self._measured = measured
        self.inner = inner
        """See :class:`pipetune.hook.loop_iterator.Batches`."""

    def next(self) -> Any:
        """See :class:`pipetune.hook.loop_iterator.Batches`."""
        return self._measured.beside(lambda: next(self.inner))

    def reset(self, loader: Any) -> None:
        """See :class:`pipetune.hook.loop_iterator.Batches`."""
        self.inner._reset(loader)
