"""The user's own loader, made by a function of the user's: ``pipetune.sweep(make_loader)``.

Its epochs follow each other without end. Their seams are part of the rate, unlike with our own loaders: they are part
of what the user's loader does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from pipetune.candidates.torch_arguments import dataloader_arguments
from pipetune.datasets.index import ImageSet
from pipetune.decoders.contract import Trial
from pipetune.loaders.contract import Batch, Loader
from pipetune.records.sweep import Candidate, Workload
from pipetune.usercode.batches import images_and_labels, is_array
from pipetune.usercode.make_loader import accepted, unpack


class _OwnLoader:
    def __init__(self, loader: Iterable[Any], *, real: bool) -> None:
        self._real = real
        self._loader: Iterable[Any] | None = loader
        self._iterator: Iterator[Any] | None = None

    def __iter__(self) -> Iterator[Batch]:
        while self._loader is not None:
            self._iterator = iter(self._loader)
            empty = True
            for batch in self._iterator:
                empty = False
                yield trainable(batch_of(batch)) if self._real else batch_of(batch)
            if empty:
                raise ValueError("make_loader made a loader without a single batch")

    def close(self) -> None:
        """See :class:`pipetune.loaders.contract.Loader`."""
        # Whatever it is, it ends its workers when nobody has it any more; what has a way of its own is told.
        for thing in (self._iterator, self._loader):
            for name in ("_shutdown_workers", "close", "shutdown"):
                end = getattr(thing, name, None)
                if callable(end):
                    end()
                    break
        self._iterator = self._loader = None


def open_loader(candidate: Candidate, workload: Workload, images: ImageSet) -> Loader:
    """The loader that the user's function makes for this candidate."""
    if workload.loader_path is None:
        raise ValueError("no loader was given")
    make_loader = unpack(Path(workload.loader_path))
    wanted = accepted(make_loader)
    loader = make_loader(**{name: value for name, value in dataloader_arguments(candidate).items() if name in wanted})
    return _OwnLoader(loader, real=workload.accelerator.kind != "emulated")


def open_trial(workload: Workload) -> Trial:
    """Nothing to try: which files the user's loader reads is not known."""
    return lambda path: None


def batch_of(batch: Any) -> Batch:
    """Images and labels of a batch of any form as tensors; labels of 0 where there are none.

    Raises:
        TypeError: there is no array in it.
    """
    images, labels = images_and_labels(batch)
    images = _stacked(images) if isinstance(images, (list, tuple)) else torch.as_tensor(images)
    return Batch(images, _labels(labels, len(images)))


def trainable(batch: Batch) -> Batch:
    """As a model takes it: whatever is no float32 is made so, which counts into the loader's time."""
    return batch if batch.images.dtype == torch.float32 else batch._replace(images=batch.images.float())


def _stacked(images: Sequence[Any]) -> torch.Tensor:
    tensors = [torch.as_tensor(image) for image in images]
    if len({tensor.shape for tensor in tensors}) == 1:
        return torch.stack(tensors)
    # Images of different sizes, as detection models take them: only their number can be reported.
    return torch.zeros(len(tensors), 1)


def _labels(found: Any, count: int) -> torch.Tensor:
    if is_array(found):
        labels = torch.as_tensor(found)
        if labels.ndim == 1 and len(labels) == count and not labels.is_floating_point():
            return labels.long()
    return torch.zeros(count, dtype=torch.int64)
