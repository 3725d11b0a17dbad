"""Loaders of other libraries, which take their settings when they are made: known from then, measured batch by batch.

Other settings need a fresh start of the script.
"""

from __future__ import annotations

import functools
import inspect
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any

from pipetune.hook.describe import true_length
from pipetune.hook.kept import KeptBatches
from pipetune.hook.seams import caller_of

#: Settings for a loader that is being made by this call, under torch's names; ``None``: its own.
SettingsFor = Callable[[FrameType | None, Mapping[str, Any]], Mapping[str, Any] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """What is known of a library's loaders."""

    name: str
    reads: type
    """A class that stands for what they read: only they know it."""
    reads_text: str
    """The same in words: ``a DALI pipeline``."""
    names: Mapping[str, str]
    """Settings under torch's names -> the constructor's arguments."""
    defaults: Mapping[str, Any]
    """Of these arguments."""
    fixed: tuple[str, ...] = ("pin_memory", "in_order", "start_method", "worker_cores", "opencv_threads", "decoder")
    """Settings that they do not have, under torch's names."""

    def changed(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Settings under torch's names as arguments of the constructor."""
        return {self.names[name]: value for name, value in settings.items() if name in self.names and value is not None}


def patch_constructor(
    kind: Any, library: Library, settings_for: SettingsFor, made: Callable[[Any], None],
    complain: Callable[[BaseException], None],
) -> None:  # fmt: skip
    """Have a say in the arguments of each object of a class, and learn of it once it was made."""
    original = kind.__init__
    signature = inspect.signature(original)

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            given = dict(signature.bind(self, *args, **kwargs).arguments)
            given |= library.changed(settings_for(caller_of(sys._getframe(1), self), given) or {})
            del given["self"]
            args, kwargs = (), given
        except Exception as error:  # of ours, or arguments that the constructor itself refuses
            complain(error)
        original(self, *args, **kwargs)
        made(self)

    # DALI tells its own arguments from a graph's by getfullargspec, which does not look behind a wrapper.
    vars(__init__)["__signature__"] = signature
    kind.__init__ = __init__


class BuiltSource:
    """The batches of such a loader; as :class:`pipetune.hook.source.Source`, without other settings.

    An epoch has the batches that the library gives. Where kept batches take the place of some, it has as many as the
    library tells; where it tells no number, they come on top of them.

    Args:
        loader: of the script.
        take: gives the next batch, and raises StopIteration at an epoch's end.
        begin: begins another epoch of the library's.
        begins_itself: an epoch begins with the request for its first batch, and nobody asks for an iterator.
    """

    def __init__(
        self, loader: Any, take: Callable[[], Any], begin: Callable[[], None], *, begins_itself: bool = False
    ) -> None:
        self.loader, self.inner = loader, loader
        self._take, self._begin, self.begins_itself = take, begin, begins_itself
        self.kept = KeptBatches()
        self.settings: Mapping[str, Any] = {}
        self.stream, self.swap, self.is_taken_beside = None, None, False
        self.replaying = self._ended = self._shifted = False
        """Shifted: the library's epochs end elsewhere than the loop's, since kept batches were handed out."""
        self.delivered = 0
        self.epoch_batches: int | None = None
        self.awaits_first, self.open_s, self.first_s = True, 0.0, 0.0
        self.opened_ns = time.monotonic_ns()

    def opened_inner(self) -> Any:
        """See :class:`pipetune.hook.source.Source`."""
        return self.inner

    @property
    def whole(self) -> bool:
        """See :class:`pipetune.hook.source.Source`."""
        return not (self.replaying or self._shifted)

    @property
    def length(self) -> int | None:
        """See :class:`pipetune.hook.source.Source`."""
        return true_length(self.loader)

    def replay(self) -> None:
        """See :class:`pipetune.hook.source.Source`."""
        self.replaying = True

    def switch(self, settings: Mapping[str, Any]) -> None:
        """Go on with the loader as it is.

        Raises:
            ValueError: other settings are asked for.
        """
        if settings:
            raise ValueError("the loader takes its settings when it is made")
        self.replaying = False

    def begin_epoch(self, loader: Any | None = None, *, open_now: bool = True) -> None:
        """See :class:`pipetune.hook.source.Source`: there are no other loaders, and nothing to start."""
        self.delivered, self._ended = 0, False
        if not self.begins_itself:
            self._begin()
            self._shifted = False
        self.awaits_first, self.opened_ns = True, time.monotonic_ns()

    def time_starts(self, count: int) -> list[tuple[float, float]]:
        """See :class:`pipetune.hook.source.Source`: its workers start when it is made."""
        return []

    def close(self) -> None:
        """Nothing: the process ends."""

    def next(self) -> Any:
        """The next batch of the epoch.

        Raises:
            StopIteration: it has ended.
        """
        if self._ended and self.begins_itself:
            self.begin_epoch()
        self._shifted = self._shifted or self.replaying
        length = self.length if self._shifted else None
        if self._ended or (length is not None and self.delivered >= length):
            self._ended = True
            raise StopIteration
        batch = self.kept.hand_out() if self.replaying else self._load(length)
        self.delivered += 1
        return batch

    def _load(self, length: int | None) -> Any:
        try:
            batch = self._take()
        except StopIteration:
            if length is None:
                self._ended = True
                self.epoch_batches = self.delivered
                raise
            self._begin()
            batch = self._take()
        if self.awaits_first:
            self.awaits_first = False
            self.first_s = (time.monotonic_ns() - self.opened_ns) / 1e9
        return batch
