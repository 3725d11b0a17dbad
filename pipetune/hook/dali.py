"""DALI's pipelines in a training script: known when they are made, measured where its PyTorch iterators give a batch.

A pipeline takes its threads and queue depth when it is built, so they are changed in a fresh start of the script only.
"""

from __future__ import annotations

import functools
import inspect
import sys
import time
from collections.abc import Callable, Mapping
from types import FrameType, ModuleType
from typing import Any

from pipetune.hook.describe import class_name, expressions_of
from pipetune.hook.kept import KeptBatches
from pipetune.hook.registry import Known
from pipetune.hook.seams import caller_of

#: Modules to wait for: with ``Pipeline``, and with its iterators for PyTorch.
PIPELINE, PYTORCH = "nvidia.dali.pipeline", "nvidia.dali.plugin.pytorch"
#: Settings under torch's names -> the pipeline's arguments.
NAMES = {"num_workers": "num_threads", "prefetch_factor": "prefetch_queue_depth"}
#: Settings that a pipeline does not have.
FIXED = ("pin_memory", "in_order", "start_method", "worker_cores", "opencv_threads", "decoder")


class Graph:
    """Stands for what a pipeline reads, which only its graph knows."""


#: Settings for a pipeline that is being made by this call, under torch's names; ``None``: its own.
SettingsFor = Callable[[FrameType | None, Mapping[str, Any]], Mapping[str, Any] | None]


def patch_pipeline(
    module: ModuleType,
    settings_for: SettingsFor,
    made: Callable[[Any], None],
    complain: Callable[[BaseException], None],
) -> None:
    """Have a say in the arguments of each pipeline, and learn of it once it was made."""
    kind: Any = module.Pipeline
    original = kind.__init__
    signature = inspect.signature(original)

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            given = dict(signature.bind(self, *args, **kwargs).arguments)
            changes = settings_for(caller_of(sys._getframe(1), self), given) or {}
            given |= {NAMES[name]: value for name, value in changes.items() if name in NAMES and value is not None}
            del given["self"]
            args, kwargs = (), given
        except Exception as error:  # of ours, or arguments that the constructor itself refuses
            complain(error)
        original(self, *args, **kwargs)
        made(self)

    # DALI tells its own arguments from a graph's by getfullargspec, which does not look behind a wrapper.
    vars(__init__)["__signature__"] = signature
    kind.__init__ = __init__


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
    written = {} if known is None else expressions_of(known.site, NAMES.values())
    try:
        batches = len(iterator)
    except Exception:  # it ends when its source does
        batches = None
    return {
        "loader_class": class_name(iterator), "dataset": "a DALI pipeline", "batches": batches,
        "batch_size": len(iterator._pipes) * int(pipeline.max_batch_size),
        "settings": {
            "num_workers": int(pipeline.num_threads or 1), "prefetch_factor": depth if isinstance(depth, int) else 2,
            "pin_memory": False,
        },
        "written": {name: written[own] for name, own in NAMES.items() if own in written},
        "names": NAMES, "switchable": False,
        "fixed": [*FIXED, *(() if isinstance(depth, int) else ("prefetch_factor",))],
    }  # fmt: skip


class PipelineSource:
    """The batches of one of DALI's iterators; as :class:`pipetune.hook.source.Source`, without other settings.

    Args:
        original: gives a batch of the iterator, and raises StopIteration at an epoch's end.
    """

    def __init__(self, iterator: Any, original: Callable[[Any], Any]) -> None:
        self.loader, self.inner = iterator, iterator
        self._original = original
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
        """Go on with the pipeline as it is.

        Raises:
            ValueError: other settings are asked for.
        """
        if settings:
            raise ValueError("a DALI pipeline takes its settings when it is built")
        self.replaying = False

    def reset(self) -> None:
        """Another epoch, which the loop begins."""
        self.loader.reset()

    def close(self) -> None:
        """Nothing: the process ends."""

    def next(self) -> Any:
        """The next batch."""
        if self.replaying:
            return self.kept.hand_out()
        try:
            batch = self._original(self.loader)
        except StopIteration:
            if not self._endless:
                raise
            if self.loader._auto_reset != "yes":
                self.loader.reset()
            batch = self._original(self.loader)
        if self.awaits_first:
            self.awaits_first = False
            self.first_s = (time.monotonic_ns() - self._opened_ns) / 1e9
        return batch
