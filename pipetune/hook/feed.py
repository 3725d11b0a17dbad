"""What the iterators of a training loop ask for batches: before, while and beside the loader that is measured."""

from __future__ import annotations

import time
import weakref
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

    def took(self, feed: Feed) -> None:
        """A batch was taken while that is not known."""

    def begin(self, feed: Feed) -> Relay | None:
        """It is: from now on it is measured; ``None``: it cannot be."""


class Feed:
    """What a loop's iterator asks: at first it only looks on, and from when training is recognised it measures."""

    def __init__(self, session: Measuring, loader: Any, source: Source | BuiltSource) -> None:
        self._session, self.loader, self.source = session, loader, source
        self.relay: Relay | None = None
        self._first = True
        self._later: Pass | None = None
        """The pass over the loader that is measured, where it is not the first."""
        self._iterator: Callable[[], Any] = lambda: None
        """What the loop iterates with in that pass, as long as it exists."""

    @property
    def inner(self) -> Any:
        """See :class:`pipetune.hook.loop_iterator.Batches`."""
        return self.source.opened_inner()

    def next(self) -> Any:
        """See :class:`pipetune.hook.loop_iterator.Batches`."""
        if self.relay is None and self._session.trained is None and self._session.trains(self, first=self._first):
            self.relay = self._session.begin(self)
        self._first = False
        if self.relay is not None:
            return self.take(None)
        measured = self._session.trained
        try:
            if measured is not None:
                return measured.beside(self.source.next)
            batch = self.source.next()
            self._session.took(self)
            return batch
        except StopIteration:
            self._first = True
            raise

    def reset(self, loader: Any) -> None:
        """See :class:`pipetune.hook.loop_iterator.Batches`."""
        self._first = True
        if self.relay is None:
            self.source.begin_epoch()
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

    @property
    def is_new(self) -> bool:
        """No batch was asked for yet."""
        return self._first and self.source.delivered == 0

    def iterated_with(self, iterator: Any) -> None:
        """Note what the loop iterates with in the pass that is measured."""
        self._iterator = weakref.ref(iterator)

    def is_free(self) -> bool:
        """Whether the pass that was measured is over: the loop was told of the end, has dropped its iterator, or has
        all batches of the epoch and may ask for no other, as Lightning's."""
        assert self.relay is not None
        return self.relay.epoch_has_ended or self._iterator() is None or self._has_all()

    def _has_all(self) -> bool:
        source = self.source
        if isinstance(source, BuiltSource) or source.stream is None:
            return False
        return not source.undelivered and not source.stream.has_more()

    def follow(self, later: Pass, loader: Any, iterator: Any) -> None:
        """Another pass over the loader is the one that is measured from now on."""
        assert self.relay is not None
        self._later = later
        self.iterated_with(iterator)
        self.relay.epoch(loader)

    def take(self, asking: Pass | None) -> Any:
        """A batch for a pass.

        Raises:
            StopIteration: it is over.
        """
        if asking is not self._later:  # one that has ended asks again
            raise StopIteration
        assert self.relay is not None
        return self.relay.next()


class Pass:
    """A later pass of the loop over the loader that is measured: the next epoch, or one beside the first.

    Some loops look at a single batch in the middle of an epoch (``next(iter(loader))``), which must not begin another.
    Others ask for the next iterator before they drop the last one. So where the pass that is measured is not over, it
    is decided with the first batch which of both this is.

    Args:
        open_beside: makes an iterator of the script's own.
    """

    def __init__(self, feed: Feed, loader: Any, open_beside: Callable[[], Any]) -> None:
        self._feed, self.loader, self._open_beside = feed, loader, open_beside
        self._beside: Any = None
        self._begun = False
        self._iterator: Callable[[], Any] = lambda: None

    @property
    def inner(self) -> Any:
        """See :class:`pipetune.hook.loop_iterator.Batches`."""
        return self._feed.inner if self._beside is None else self._beside

    def iterated_with(self, iterator: Any) -> None:
        """Note what the loop iterates with, and begin where the pass before is over."""
        self._iterator = weakref.ref(iterator)
        if self._feed.is_free():
            self._begin()

    def _begin(self) -> None:
        self._begun = True
        iterator = self._iterator()
        if self._feed.is_free() and iterator is not None:
            self._feed.follow(self, self.loader, iterator)
        else:
            self._feed.source.is_taken_beside = True
            self._beside = self._open_beside()

    def next(self) -> Any:
        """See :class:`pipetune.hook.loop_iterator.Batches`."""
        if not self._begun:
            self._begin()
        if self._beside is not None:
            return self._feed.beside(lambda: next(self._beside))
        return self._feed.take(self)

    def reset(self, loader: Any) -> None:
        """See :class:`pipetune.hook.loop_iterator.Batches`."""
        if self._beside is not None:
            self._beside._reset(loader)
        elif self._begun:
            self._feed.reset(loader)
        elif self._feed.is_free():
            self._begin()


class Other:
    """What the iterator of another loader asks while one is measured: an evaluation, or a second loader to train on."""

    def __init__(self, measured: Feed, loader: Any, inner: Any) -> None:
        self._measured, self.loader = measured, loader
        self.inner = inner
        """See :class:`pipetune.hook.loop_iterator.Batches`."""

    def next(self) -> Any:
        """See :class:`pipetune.hook.loop_iterator.Batches`."""
        return self._measured.beside(lambda: next(self.inner))

    def reset(self, loader: Any) -> None:
        """See :class:`pipetune.hook.loop_iterator.Batches`."""
        self.inner._reset(loader)
