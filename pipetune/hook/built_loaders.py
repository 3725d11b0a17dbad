"""Loaders of other libraries than torch in a script that is swept: DALI's pipelines and iterators, FFCV's loaders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import FrameType, ModuleType
from typing import Any, Protocol

from pipetune.hook import dali, ffcv
from pipetune.hook import profile as profiles
from pipetune.hook.built import Library, patch_constructor
from pipetune.hook.feed import Feed, Measuring
from pipetune.hook.registry import Known, Loaders


class Host(Measuring, Protocol):
    """The session, as far as such loaders need it."""

    def complain(self, error: BaseException) -> None:
        """Tell of an error of ours."""

    def report_loader(self, known: Known | None, dataset: str, library: str | None = None) -> None:
        """Tell of a loader that was made."""

    def look_for_steps(self) -> None:
        """Notice from now on when an optimizer steps."""


class BuiltLoaders:
    """Knows these loaders, gives them their settings when they are made, and watches what is taken from them.

    Args:
        loaders: all that the process has made.
        matcher: finds the settings of a loader; ``None``: all have their own.
    """

    def __init__(self, host: Host, loaders: Loaders, matcher: profiles.Matcher | None) -> None:
        self._host, self._loaders, self._matcher = host, loaders, matcher
        self._being_made: Known | None = None
        self._feeds: dict[int, Feed] = {}

    def on_module(self, module: ModuleType) -> None:
        """A module of DALI's or FFCV's has been imported."""
        if module.__name__ == dali.PIPELINE:
            self._patch(module.Pipeline, dali.LIBRARY)
        elif module.__name__ == dali.PYTORCH:
            dali.patch_iterators(module, self._take)
        else:
            self._patch(module.Loader, ffcv.LIBRARY)
            ffcv.patch_iterators(module, self._iterate)

    def _patch(self, kind: Any, library: Library) -> None:
        def settings_for(frame: FrameType | None, _: Mapping[str, Any]) -> Mapping[str, Any] | None:
            reads = library.reads()
            self._being_made = known = self._loaders.identify(frame, reads, library.name)
            tuned = None if known is None or self._matcher is None else self._matcher.find(known, reads)
            return None if tuned is None else tuned.settings

        def made(loader: Any) -> None:
            known, self._being_made = self._being_made, None
            if known is not None:
                self._loaders.add(loader, known)
            self._host.report_loader(known, library.reads_text, library.name)

        patch_constructor(kind, library, settings_for, made, self._host.complain)

    def _take(self, iterator: Any, original: Callable[[Any], Any]) -> Any:
        """A batch of one of DALI's iterators."""
        feed = self._feeds.get(id(iterator))
        if feed is None:
            self._host.look_for_steps()
            feed = self._feeds[id(iterator)] = Feed(self._host, iterator, dali.source_of(iterator, original))
        return feed.next()

    def _iterate(self, loader: Any, original: Callable[[Any], Any]) -> Any:
        """An iterator over one of FFCV's loaders."""
        feed = self._feeds.get(id(loader))
        if feed is not None:
            feed.reset(loader)
        else:
            self._host.look_for_steps()
            feed = self._feeds[id(loader)] = Feed(self._host, loader, ffcv.EpochSource(loader, original))
        return ffcv.LoopIterator(feed)
