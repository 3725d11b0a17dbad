"""DALI's pipelines in a training script: known when made, measured where its iterators for PyTorch give a batch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from pipetune.hook.built import BuiltSource, Library
from pipetune.hook.describe import class_name, expressions_of
from pipetune.hook.registry import Known

#: Modules to wait for: with ``Pipeline``, and with its iterators for PyTorch.
PIPELINE, PYTORCH = "nvidia.dali.pipeline", "nvidia.dali.plugin.pytorch"


class Graph:
    """Stands for what a pipeline reads, which only its graph knows."""


LIBRARY = Library(
    name="DALI", reads=Graph, reads_text="a DALI pipeline",
    names={"num_workers": "num_threads", "prefetch_factor": "prefetch_queue_depth"},
    defaults={"num_threads": None, "prefetch_queue_depth": 2},
)  # fmt: skip


def patch_iterators(module: ModuleType, take: Callable[[Any, Callable[[Any], Any]], Any]) -> None:
    """Have ``take`` called for each batch, with the iterator and what gives the batch."""
    kind: Any = module.DALIGenericIterator
    original = kind.__next__

    @functools.wraps(original)
    def __next__(self: Any) -> Any:
        return take(self, original)

    kind.__next__ = __next__


def described(iterator: Any, known: Known | None) -> dict[str, Any]:
    """What the script's loader is, in the words of :class:`pipetune.records.script.ScriptLoader`."""
    pipeline = iterator._pipes[0]
    depth = pipeline.prefetch_queue_depth
    names = LIBRARY.names
    written = {} if known is None else expressions_of(known.site, names.values())
    try:
        batches = len(iterator)
    except Exception:  # it ends when its source does
        batches = None
    return {
        "loader_class": class_name(iterator), "dataset": LIBRARY.reads_text, "batches": batches,
        "batch_size": len(iterator._pipes) * int(pipeline.max_batch_size),
        "settings": {
            "num_workers": int(pipeline.num_threads or 1), "prefetch_factor": depth if isinstance(depth, int) else 2,
            "pin_memory": False,
        },
        "written": {name: written[own] for name, own in names.items() if own in written},
        "names": dict(names), "switchable": False,
        "fixed": [*LIBRARY.fixed, *(() if isinstance(depth, int) else ("prefetch_factor",))],
    }  # fmt: skip


def source_of(iterator: Any, original: Callable[[Any], Any]) -> BuiltSource:
    """The batches of one of DALI's iterators.

    Args:
        original: gives a batch of the iterator, and raises StopIteration at an epoch's end.
    """

    def begin() -> None:
        if iterator._auto_reset != "yes":  # else it has begun by itself
            iterator.reset()

    return BuiltSource(iterator, lambda: original(iterator), begin, begins_itself=True)
