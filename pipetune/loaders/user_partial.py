"""The user's own ``DataLoader`` with stages left out, for ``pipetune explain``.

What it reads and how it decodes is the user's code, so a stage can be left out only where torch or torchvision have a
seam: a map-style data set gives samples, which are collated; a data set like ``ImageFolder`` has a ``loader`` that
reads and decodes a path, and transforms what that gives.
"""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset

from pipetune.errors import UsageError
from pipetune.loaders.new_memory import unfilled
from pipetune.records.explanation import COLLATE, DECODE, FETCH, HAND_OVER, TRANSFORM

#: Samples that are held at most, and the memory that they may take (bytes), by the first of them.
_MOST_SAMPLES, _MOST_BYTES = 256, 256 << 20
#: The functions with which torchvision's folders read and decode an image with Pillow.
_PIL_LOADERS = ("default_loader", "pil_loader")


def partial_of(loader: Any, stages: tuple[str, ...], seed: int) -> Any:
    """A copy of the loader that does these stages only, on some of its samples.

    Args:
        loader: the user's.
        stages: the last ones of :data:`pipetune.records.explanation.STAGES`, or all.
        seed: of which samples.

    Raises:
        UsageError: the loader has no seam there.
    """
    if not isinstance(loader, DataLoader):
        raise UsageError(f"a {type(loader).__name__} cannot be divided into stages, as a torch DataLoader can")
    if isinstance(loader.dataset, IterableDataset) or loader.batch_sampler is None:
        raise UsageError("an iterable data set, or one that makes whole batches, cannot be divided into stages")
    dataset: Any = loader.dataset
    picked = _picked(dataset, seed)
    if FETCH in stages:
        return _copy(loader, dataset=_Picked(dataset, picked))
    if TRANSFORM in stages:
        read = _bytes_of if DECODE in stages else _images_of
        return _copy(loader, dataset=_Picked(_with_loader(dataset, picked, read), picked))
    samples = [dataset[index] for index in picked]
    if stages != (HAND_OVER,):
        assert COLLATE in stages
        return _copy(loader, dataset=_Held(samples, len(dataset)))
    collate: Callable[[Any], Any] = loader.collate_fn
    batch = collate([samples[place % len(samples)] for place in range(loader.batch_size or 1)])
    return _copy(
        loader, dataset=_Unfilled(batch), sampler=loader.batch_sampler, batch_sampler=None, batch_size=None,
        collate_fn=_as_it_is,
    )  # fmt: skip


def _picked(dataset: Any, seed: int) -> list[int]:
    """Indices of some samples, drawn at random."""
    count = len(dataset)
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed)).tolist()
    most = _MOST_BYTES // max(1, _bytes_in(dataset[order[0]]))
    found: list[int] = order[: max(1, min(_MOST_SAMPLES, most))]
    return found


def _bytes_in(sample: Any) -> int:
    if isinstance(sample, Mapping):
        return sum(map(_bytes_in, sample.values()))
    if isinstance(sample, (list, tuple)):
        return sum(map(_bytes_in, sample))
    return int(getattr(sample, "nbytes", 0))


def _copy(loader: DataLoader[Any], **values: Any) -> Any:
    made = object.__new__(type(loader))
    # DataLoader's own __setattr__ refuses to change what an iterator might be reading.
    vars(made).update({**vars(loader), "_iterator": None, **values})
    return made


class _Picked(Dataset[Any]):
    """A data set of as many samples, all of which are some of another one's."""

    def __init__(self, dataset: Any, picked: list[int]) -> None:
        self._dataset, self._picked, self._count = dataset, picked, len(dataset)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Any:
        return self._dataset[self._picked[index % len(self._picked)]]


class _Held(Dataset[Any]):
    """A data set whose samples are ready."""

    def __init__(self, samples: list[Any], count: int) -> None:
        self._samples, self._count = samples, count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Any:
        return self._samples[index % len(self._samples)]


class _Unfilled(Dataset[Any]):
    """Indices of a batch -> a batch like the given one, in new memory that nobody fills."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch

    def __getitem__(self, indices: Sequence[int]) -> Any:
        return _like(self._batch)


def _like(batch: Any) -> Any:
    if isinstance(batch, torch.Tensor):
        return unfilled(batch.shape, batch.dtype)
    if isinstance(batch, Mapping):
        return {name: _like(value) for name, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*map(_like, batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(map(_like, batch))
    return batch


def _as_it_is(batch: Any) -> Any:
    return batch


def _with_loader(dataset: Any, picked: list[int], read: Callable[[Any, list[str]], Any]) -> Any:
    """A copy of the data set whose ``loader`` has been asked for the picked samples already.

    Raises:
        UsageError: it has no such function.
    """
    if isinstance(dataset, Subset):
        inner = _with_loader(dataset.dataset, [int(dataset.indices[index]) for index in picked], read)
        return Subset(inner, dataset.indices)
    samples = getattr(dataset, "samples", None)
    if not callable(getattr(dataset, "loader", None)) or not isinstance(samples, (list, tuple)):
        raise UsageError(f"{type(dataset).__name__} reads, decodes and transforms in one go; ImageFolder does not")
    view = copy.copy(dataset)
    view.loader = read(dataset.loader, [str(samples[index][0]) for index in picked])
    return view


def _images_of(load: Callable[[str], Any], paths: list[str]) -> Any:
    found = {}
    for path in paths:
        image = load(path)
        if callable(getattr(image, "load", None)):  # Pillow decodes when it is first asked for a pixel
            image.load()
        found[path] = image
    return found.__getitem__


def _bytes_of(load: Any, paths: list[str]) -> Any:
    if getattr(load, "__name__", "") not in _PIL_LOADERS or not str(load.__module__).startswith("torchvision."):
        raise UsageError("the data set's own function reads and decodes a file in one go")
    found = {}
    for path in paths:
        with open(path, "rb") as file:
            found[path] = file.read()
    return _FromMemory(found)


class _FromMemory:
    """As torchvision's ``pil_loader``, of files that have been read."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self._files = files

    def __call__(self, path: str) -> Any:
        from PIL import Image

        with io.BytesIO(self._files[path]) as file:
            return Image.open(file).convert("RGB")
