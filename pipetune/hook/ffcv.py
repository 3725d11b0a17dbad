"""FFCV's loaders in a training script: known when they are made, measured where their iterators give a batch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pipetune.hook.built import BuiltSource, Library
from pipetune.hook.describe import class_name, expressions_of
from pipetune.hook.registry import Known

if TYPE_CHECKING:  # of all that measures, a script that is only given its settings imports nothing
    from pipetune.hook.feed import Feed

#: The module to wait for.
LOADER = "ffcv.loader.loader"


class File:
    """Stands for what a loader reads: one file, and whatever its pipelines make of it."""


LIBRARY = Library(
    name="FFCV", reads=File, reads_text="an FFCV file",
    names={"num_workers": "num_workers", "prefetch_factor": "batches_ahead"},
    defaults={"num_workers": -1, "batches_ahead": 3},
)  # fmt: skip


def patch_iterators(module: ModuleType, iterate: Callable[[Any, Callable[[Any], Any]], Any]) -> None:
    """Have ``iterate`` called for each iterator, with the loader and what makes one of FFCV's own."""
    kind: Any = module.Loader
    original = kind.__iter__

    @functools.wraps(original)
    def __iter__(self: Any) -> Any:
        return iterate(self, original)

    kind.__iter__ = __iter__


def described(loader: Any, known: Known | None) -> dict[str, Any]:
    """What the script's loader is, in the words of :class:`pipetune.records.script.ScriptLoader`."""
    written = {} if known is None else expressions_of(known.site, LIBRARY.names.values())
    return {
        "loader_class": class_name(loader), "dataset": LIBRARY.reads_text, "batches": len(loader),
        "batch_size": int(loader.batch_size),
        "settings": {
            "num_workers": int(loader.num_workers), "prefetch_factor": int(loader.batches_ahead), "pin_memory": False,
        },
        "written": {name: written[own] for name, own in LIBRARY.names.items() if own in written},
        "names": dict(LIBRARY.names), "switchable": False, "fixed": list(LIBRARY.fixed),
    }  # fmt: skip


class LoopIterator:
    """What a training loop gets instead of FFCV's own iterator, whose other attributes it hands on.

    Args:
        feed: asked for each batch.
    """

    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    def __iter__(self) -> LoopIterator:
        return self

    def __next__(self) -> Any:
        return self._feed.next()

    def __getattr__(self, name: str) -> Any:
        if name == "_feed":  # while it is being copied
            raise AttributeError(name)
        return getattr(self._feed.inner, name)


class EpochSource(BuiltSource):
    """The batches of one of FFCV's loaders, one epoch's iterator after the other.

    Args:
        original: makes an iterator of the loader.
    """

    def __init__(self, loader: Any, original: Callable[[Any], Any]) -> None:
        def begin() -> None:
            self.inner = original(loader)

        super().__init__(loader, lambda: next(self.inner), begin)
        begin()
