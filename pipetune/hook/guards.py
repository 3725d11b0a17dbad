"""What may silently change the training when the number of workers changes, found in the running script."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
from types import FrameType
from typing import Any

#: So many frames lie at most between a loop over Accelerate's dispatcher and the iterator that torch makes for it.
_FRAMES = 8


def explain_missing_guard() -> str | None:
    """Python's own explanation, where this process is being spawned and runs the script once more: it has no guard.

    Python itself gives it as soon as such a process starts another one; a training without workers starts none.

    Returns:
        ``None``: this is the script, or the script has a guard.
    """
    if not getattr(multiprocessing.current_process(), "_inheriting", False):
        return None
    spawn: Any = sys.modules["multiprocessing.spawn"]  # which has started it
    try:
        spawn._check_not_importing_main()
    except RuntimeError as error:
        return f"RuntimeError: {error}"
    return None


def loads_for_all_ranks(frame: FrameType | None) -> bool:
    """Whether an iterator is made for Accelerate's dispatcher, which loads in rank 0 for all ranks.

    Args:
        frame: that asks for the iterator.
    """
    for _ in range(_FRAMES):
        if frame is None:
            return False
        if frame.f_globals.get("__name__") == "accelerate.data_loader" and frame.f_code.co_name == "__iter__":
            return "DataLoaderDispatcher" in (kind.__name__ for kind in type(frame.f_locals.get("self")).__mro__)
        frame = frame.f_back
    return False


def own_generators(dataset: Any) -> list[str]:
    """Attributes of a data set that are random generators of its own: ``["rng"]``.

    Every worker gets a copy, and all copies draw the same numbers: the same augmentations n times.
    """
    found = []
    for place in (dataset, _attribute(dataset, "dataset"), _attribute(dataset, "transform")):
        try:
            values = vars(place)
        except TypeError:
            continue
        found += [name for name, value in values.items() if _is_generator(value)]
    return sorted(set(found))


def renewed_with_epochs(dataset: Any) -> list[str]:
    """What a data set offers for being told of each epoch: ``["set_epoch"]``; empty: nothing that is known.

    A worker that lives on has a copy of its own, which is not told.
    """
    places = (dataset, _attribute(dataset, "dataset"), _attribute(dataset, "transform"))
    return ["set_epoch"] if any(callable(_attribute(place, "set_epoch")) for place in places) else []


def state_of(dataset: Any) -> dict[str, Any]:
    """What a change of a data set shows in: attribute -> its value, or which object it is and how long.

    Of the data set, of that which it is a part of, and of its transform.
    """
    found: dict[str, Any] = {}
    for prefix, place in (("", dataset), ("dataset.", _attribute(dataset, "dataset")),
                          ("transform.", _attribute(dataset, "transform"))):  # fmt: skip
        with contextlib.suppress(TypeError):  # without a __dict__
            found |= {f"{prefix}{name}": _trace_of(value) for name, value in vars(place).items()}
    return found


def _trace_of(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return value
    return type(value).__qualname__, id(value), len(value) if isinstance(value, (list, dict, set)) else None


def _attribute(dataset: Any, name: str) -> Any:
    """An attribute of the script's data set; ``None``: it has none, or computing it raises."""
    try:
        return getattr(dataset, name, None)
    except Exception:  # __getattr__ of the user's may raise anything
        return None


def _is_generator(value: Any) -> bool:
    kind = type(value)
    return (kind.__module__.partition(".")[0], kind.__name__) in {
        ("numpy", "Generator"), ("numpy", "RandomState"), ("random", "Random"), ("torch", "Generator"),
    }  # fmt: skip


def shards_of(dataset: Any) -> int | None:
    """Number of shards or files that an iterable data set divides among its workers; ``None``: not known.

    A worker without one yields nothing, and WebDataset's raise an error. Hugging Face's data sets state the number;
    elsewhere the longest list of paths or URLs in the data set, or in a stage of a WebDataset pipeline, is taken for
    it. ``ResampledShards`` draw with replacement, so that every worker has enough.
    """
    for name in ("num_shards", "n_shards"):
        stated = _attribute(dataset, name)
        if isinstance(stated, int) and not isinstance(stated, bool) and stated > 0:
            return stated
    stages = _attribute(dataset, "pipeline")
    places = [dataset, *(stages if isinstance(stages, list) else ())]
    if any("Resampled" in type(place).__name__ for place in places):
        return None
    counts = []
    for place in places:
        with contextlib.suppress(TypeError):  # without a __dict__
            counts += [len(value) for value in vars(place).values() if _are_places(value)]
    return max(counts, default=None)


def told_workers(dataset: Any, num_workers: int) -> list[str]:
    """Attributes of an iterable data set that were computed from the number of workers: ``["num_workers"]``.

    By their name and value; or, of a WebDataset pipeline with an epoch (``with_epoch``), how many samples each worker
    yields. Such a data set divides its samples among so many workers, whatever their number is later.
    """
    stages = _attribute(dataset, "pipeline")
    found = []
    for place in (dataset, *(stages if isinstance(stages, list) else ())):
        with contextlib.suppress(TypeError):  # without a __dict__
            found += [
                name
                for name, value in vars(place).items()
                if ("worker" in name.lower() and type(value) is int and value == num_workers > 1)
                or (name == "nsamples" and type(value) is int and value > 0 and isinstance(stages, list))
            ]
    return sorted(set(found))


def _are_places(values: Any) -> bool:
    if not isinstance(values, list | tuple) or not values:
        return False
    return all(isinstance(value, str | os.PathLike) and "/" in str(value) for value in values)


def is_iterable_set(loader: Any) -> bool:
    """Whether a loader reads an ``IterableDataset``, of which each worker has a copy that yields everything unless the
    script divides it."""
    return getattr(loader, "_dataset_kind", 0) == 1
