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

    Args:
        loader: of the script.
        take: gives the next batch, and raises StopIteration at an epoch's end.
        begin: begins another epoch.
    """

    def __init__(self, loader: Any, take: Callable[[], Any], begin: Callable[[], None]) -> None:
        self.loader, self.inner = loader, loader
        self._take, self._begin = take, begin
        self.kept = KeptBatches()
        self.settings: Mapping[str, Any] = {}
        self.stream, self.swap = None, None
        self.replaying = self._endless = False
        self.awaits_first, self.open_s, self.first_s = True, 0.0, 0.0
        self._opened_ns = time.monotonic_ns()

    def go_on(self) -> None:
        """From now on no epoch ends."""
        self._endless = True

    def switch(self, settings: Mapping[str, Any]) -> None:
        """Go on with the loader as it is.

        Raises:
            ValueError: other settings are asked for.
        """
        if settings:
            raise ValueError("the loader takes its settings when it is made")
        self.replaying = False

    def reset(self) -> None:
        """Another epoch, which the loop begins."""
        self._begin()

    def close(self) -> None:
        """Nothing: the process ends."""

    def next(self) -> Any:
        """The next batch."""
        if self.replaying:
            return self.kept.hand_out()
        try:
            batch = self._take()
        except StopIteration:
            if not self._endless:
                raise
            self._begin()
            batch = self._take()
        if self.awaits_first:
            self.awaits_first = False
            self.first_s = (time.monotonic_ns() - self._opened_ns) / 1e9
        return batch
