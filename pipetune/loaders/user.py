"""The loader ``user``: made by a function of the user's, ``pipetune.sweep(make_loader)``.

It is iterated again and again. What it does between two epochs counts into its rate, unlike with pipetune's loaders,
whose epochs follow each other without a gap.
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
from pipetune.usercode.imported import make_loader_of
from pipetune.usercode.make_loader import NAMED_FILE, accepted, unpack


class _UserLoader:
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
        # Most loaders end their workers when they are garbage; those with a method for it are closed by that.
        for thing in (self._iterator, self._loader):
            for name in ("_shutdown_workers", "close", "shutdown"):
                end = getattr(thing, name, None)
                if callable(end):
                    end()
                    break
        self._iterator = self._loader = None


def open_loader(candidate: Candidate, workload: Workload, images: ImageSet) -> Loader:
    """The loader that the user's function makes for this candidate."""
    return _UserLoader(_make(candidate, workload), real=workload.accelerator.kind != "emulated")


def open_partial(candidate: Candidate, workload: Workload, stages: tuple[str, ...]) -> Loader:
    """The same, of which only these stages are done.

    Raises:
        UsageError: it cannot be divided there.
    """
    from pipetune.loaders.user_partial import partial_of

    part = partial_of(_make(candidate, workload), stages, workload.seed)
    return _UserLoader(part, real=workload.accelerator.kind != "emulated")


def _make(candidate: Candidate, workload: Workload) -> Iterable[Any]:
    if workload.loader_path is None:
        raise ValueError("no loader was given")
    path = Path(workload.loader_path)
    make_loader = make_loader_of(path) if path.name == NAMED_FILE else unpack(path)
    wanted = accepted(make_loader)
    made: Iterable[Any] = make_loader(
        **{name: value for name, value in dataloader_arguments(candidate).items() if name in wanted}
    )
    return made


def open_trial(candidate: Candidate, workload: Workload) -> Trial:
    """A trial that always succeeds: it is not known which files the user's loader reads."""
    return lambda path: None


def batch_of(batch: Any) -> Batch:
    """The images and labels of a batch of any form as tensors; labels of 0 where there are none.

    Raises:
        TypeError: there is no array in it.
    """
    images, labels = images_and_labels(batch)
    images = _stacked(images) if isinstance(images, (list, tuple)) else torch.as_tensor(images)
    return Batch(images, _labels(labels, len(images)))


def trainable(batch: Batch) -> Batch:
    """The batch with float32 images, as a model takes them; a conversion counts into the loader's time."""
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
