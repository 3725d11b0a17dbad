"""A loader of the script's with other settings: the same data set, sampler, collating and workers' start-up.

torch's iterators read nothing but attributes of the loader, so a copy with other attributes makes another iterator.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping
from typing import Any

from pipetune.usercode.worker_start import worker_start

#: Attribute that marks a copy, whose iterator is made by torch itself.
MARK = "_pipetune_view"


def view_of(
    loader: Any, settings: Mapping[str, Any], indices: Any | None, all_cores: tuple[int, ...] | None = None
) -> Any:
    """A copy of a loader with these settings.

    Args:
        settings: under torch's names; ``start_method`` for the context.
        indices: what takes the place of the sampler; ``None``: the data set is iterable and has none.
        all_cores: that the process began with.
    """
    kind = type(loader)
    # Without the finaliser of the script's class, which may end workers that are not the copy's.
    made: Any = object.__new__(
        type(kind.__name__, (kind,), {"__del__": lambda self: None, "__module__": kind.__module__})
    )
    values = {**vars(loader), "_iterator": None, MARK: True}
    if indices is not None:
        values["batch_sampler" if loader.batch_sampler is not None else "sampler"] = indices
    workers = int(settings.get("num_workers", loader.num_workers))
    for name in ("pin_memory", "in_order"):
        if name in settings:
            values[name] = settings[name]
    lives_on = bool(settings.get("persistent_workers", loader.persistent_workers))
    values |= {"num_workers": workers, "persistent_workers": lives_on and workers > 0}  # torch refuses it without any
    values["prefetch_factor"] = (settings.get("prefetch_factor") or loader.prefetch_factor or 2) if workers else None
    if workers == 0:
        values["timeout"] = 0
    context = "_DataLoader__multiprocessing_context"
    if workers == 0:
        values[context] = None
    elif settings.get("start_method"):
        import torch.multiprocessing

        values[context] = torch.multiprocessing.get_context(settings["start_method"])
    start = worker_init_for(loader.worker_init_fn, loader.num_workers, workers)
    values["worker_init_fn"] = worker_start(start, settings, all_cores)
    vars(made).update(values)
    return made


def worker_init_for(function: Any, before: int, workers: int) -> Any:
    """The workers' start-up with the new number of workers, where it was told the old one.

    Why: transformers' and mmengine's seeds count with it: with the old one, workers of two ranks would draw the same.
    """
    if isinstance(function, functools.partial) and function.keywords.get("num_workers") == before:
        return functools.partial(function.func, *function.args, **{**function.keywords, "num_workers": workers})
    return function


def end(iterator: Any) -> None:
    """End an iterator's workers."""
    shutdown = getattr(iterator, "_shutdown_workers", None)
    if callable(shutdown):
        with contextlib.suppress(Exception):  # they are killed with the script at the latest
            shutdown()
