"""What is told of the loader that is trained on, and of the accelerator it is trained on. Imports no torch."""

from __future__ import annotations

import sys
from typing import Any

from pipetune.hook import fastai
from pipetune.hook.describe import batch_size_of, class_name, expressions_of, settings_of, true_length
from pipetune.hook.guards import is_iterable_set, own_generators, renewed_with_epochs, shards_of, told_workers
from pipetune.hook.registry import Known


def describe_loader(loader: Any, known: Known | None) -> dict[str, Any]:
    """What a loader of torch's or fastai's is, in the words of :class:`pipetune.records.script.ScriptLoader`."""
    outer = fastai.outer(loader)
    return {
        "written": {} if known is None else expressions_of(known.site),
        "loader_class": class_name(outer),
        "dataset": class_name(outer.dataset),
        "settings": settings_of(loader),
        "batches": true_length(outer),
        "batch_size": batch_size_of(outer),
        "iterable": is_iterable_set(loader),
        "shards": shards_of(outer.dataset) if outer is loader and is_iterable_set(loader) else None,
        "own_generators": own_generators(outer.dataset),
        "renewed_with_epochs": renewed_with_epochs(outer.dataset),
        "told_workers": told_workers(outer.dataset, settings_of(loader).get("num_workers") or 0)
        if outer is loader and is_iterable_set(loader)
        else [],
        "fixed": list(fastai.FIXED) if outer is not loader else [],
    }


def describe_device(clock: Any) -> dict[str, Any]:
    """The accelerator that the loop trains on, as its clock found it."""
    if clock.name != "cuda":
        return {"device": "cpu", "device_index": None, "device_name": None}
    torch = sys.modules["torch"]
    index = clock.device_index
    return {"device": "cuda", "device_index": index, "device_name": torch.cuda.get_device_name(index)}
