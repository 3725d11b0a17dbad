"""The user's own ``DataLoader`` with stages left out, for ``pipetune explain``.

What it reads and how it decodes is the user's code, so a stage can be left out only where torch or torchvision have a
seam: a map-style data set gives samples, which are collated; a data set like ``ImageFolder`` has a ``loader`` that
reads and decodes a path, and transforms what that gives. Where there is no seam, all stages are measured together.

The user's data set itself is not asked for a sample in this process: one that opens a file when it is first asked would
share it with its workers.
"""

from __future__ import annotations

import copy
import io
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset

from pipetune.errors import UsageError
from pipetune.loaders.new_memory import unfilled
from pipetune.records.explanation import DECODE, FETCH, HAND_OVER, TRANSFORM

#: Samples that are held at most, and the memory that they may take (bytes).
_MOST_SAMPLES, _MOST_BYTES = 256, 512 << 20
#: The same where each worker gets a copy: a tensor that is sent to a worker takes a file descriptor.
_MOST_COPIED = 32
#: Memory of a pixel as Pillow holds it (bytes).
_PIXEL_BYTES = 4
#: The functions with which torchvision's folders read and decode an image with Pillow.
_PIL_LOADERS = ("default_loader", "pil_loader")


def partial_of(loader: Any, stages: tuple[str, ...], seed: int) -> Any:
    """A copy of the loader that does these stages only, on some of its samples.

    Args:
        loader: the user's.
        stages: the last ones of :data:`pipetune.records.explanation.STAGES`; or all, for which a loader that cannot be
            divided is taken as it is.
        seed: of which samples.

    Raises:
        UsageError: the loader has no seam there.
    """
    reason = _why_whole(loader)
    if reason is not None and FETCH in stages:
        return loader
    if reason is not None:
        raise UsageError(reason)
    dataset: Any = loader.dataset
    picked = _picked(loader, seed)
    if FETCH in stages:
        return _copy(loader, dataset=_some_of(dataset, picked))
    if TRANSFORM in stages:
        read = _bytes_of if DECODE in stages else _images_of
        return _copy(loader, dataset=_some_of(_with_loader(dataset, picked, read), picked))
    apart = copy.copy(dataset)
    samples = [apart[index] for index in picked]
    if stages != (HAND_OVER,):
        return _copy(loader, dataset=_Held(samples, len(dataset)))
    collate: Callable[[Any], Any] = loader.collate_fn
    batch = collate([samples[place % len(samples)] for place in range(_batch_size(loader))])
    return _copy(
        loader, dataset=_Unfilled(batch), sampler=loader.batch_sampler, batch_sampler=None, batch_size=None,
        collate_fn=_as_it_is,
    )  # fmt: skip


def _why_whole(loader: Any) -> str | None:
    """Why a loader can only be measured as a whole; ``None``: it can be divided."""
    if not isinstance(loader, DataLoader) or type(loader).__iter__ is not DataLoader.__iter__:
        return f"a {type(loader).__name__} has an iterator of its own, which cannot be divided into stages"
    if isinstance(loader.dataset, IterableDataset) or loader.batch_sampler is None:
        return "an iterable data set, or one that makes whole batches, cannot be divided into stages"
    return None


def _batch_size(loader: DataLoader[Any]) -> int:
    """Samples in a batch, also where the user's own sampler decides it."""
    size = loader.batch_size or getattr(loader.batch_sampler, "batch_size", None)
    return int(size) if size else len(next(iter(loader.batch_sampler)))


def _picked(loader: DataLoader[Any], seed: int) -> list[int]:
    """Indices of some samples, drawn at random, as many as may be held; the same for all stages."""
    dataset: Any = loader.dataset
    order = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(seed)).tolist()
    context = getattr(loader, "multiprocessing_context", None)
    copied = context is not None and context.get_start_method() != "fork"
    found: list[int] = order[: _MOST_COPIED if copied and loader.num_workers else _MOST_SAMPLES]
    sizes = [_decoded_bytes(dataset, index) for index in found]
    if None in sizes:
        sizes = [_bytes_in(copy.copy(dataset)[found[0]])] * len(found)
    left = _MOST_BYTES
    for place, size in enumerate(sizes):
        left -= size or 0
        if left < 0:
            return found[: max(1, place)]
    return found


def _decoded_bytes(dataset: Any, index: int) -> int | None:
    """Memory that a sample's image takes decoded, by its file's header; ``None``: it is not known which file it is."""
    if isinstance(dataset, Subset):
        return _decoded_bytes(dataset.dataset, int(dataset.indices[index]))
    if not _has_loader(dataset):
        return None
    from PIL import Image

    try:
        with Image.open(dataset.samples[index][0]) as image:
            return image.width * image.height * _PIXEL_BYTES
    except OSError:  # another format, which the user's own function reads
        return None


def _bytes_in(sample: Any) -> int:
    if isinstance(sample, Mapping):
        return sum(map(_bytes_in, sample.values()))
    if isinstance(sample, (list, tuple)):
        return sum(map(_bytes_in, sample))
    if hasattr(sample, "width") and hasattr(sample, "height"):  # a Pillow image
        return int(sample.width) * int(sample.height) * _PIXEL_BYTES
    return int(getattr(sample, "nbytes", 0))


def _copy(loader: DataLoader[Any], **values: Any) -> Any:
    made = object.__new__(type(loader))
    # DataLoader's own __setattr__ refuses to change what an iterator might be reading. Workers that start anew with
    # each epoch would take most of the time of a loader that does next to nothing.
    workers = {"persistent_workers": loader.num_workers > 0, "_iterator": None}
    vars(made).update({**vars(loader), **workers, **values})
    return made


class _Picked(Dataset[Any]):
    """A data set of as many samples, all of which are some of another one's. What it lacks, the other one has."""

    def __init__(self, dataset: Any, picked: list[int]) -> None:
        self._dataset, self._picked, self._count = dataset, picked, len(dataset)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        return self._dataset[self._own(index)]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # its own, while it is being unpickled
            raise AttributeError(name)
        return getattr(self._dataset, name)

    def _own(self, index: Any) -> int:
        return self._picked[int(index) % len(self._picked)]


class _PickedAtOnce(_Picked):
    """The same of a data set that gives several samples at once."""

    def __getitems__(self, indices: Sequence[Any]) -> Any:
        return self._dataset.__getitems__([self._own(index) for index in indices])


def _some_of(dataset: Any, picked: list[int]) -> Any:
    return (_PickedAtOnce if callable(getattr(dataset, "__getitems__", None)) else _Picked)(dataset, picked)


class _Held(Dataset[Any]):
    """A data set whose samples are ready."""

    def __init__(self, samples: list[Any], count: int) -> None:
        self._samples, self._count = samples, count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        return self._samples[int(index) % len(self._samples)]


class _Unfilled(Dataset[Any]):
    """Indices of a batch -> a batch like the given one, in new memory that nobody fills."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch

    def __getitem__(self, indices: Sequence[Any]) -> Any:
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


def _has_loader(dataset: Any) -> bool:
    return callable(getattr(dataset, "loader", None)) and isinstance(getattr(dataset, "samples", None), (list, tuple))


def _with_loader(dataset: Any, picked: list[int], read: Callable[[Any, list[Any]], _Kept]) -> Any:
    """A copy of the data set whose ``loader`` has been asked for the picked samples already.

    Raises:
        UsageError: it has no such function, or does not ask it.
    """
    if isinstance(dataset, Subset):
        inner = _with_loader(dataset.dataset, [int(dataset.indices[index]) for index in picked], read)
        return Subset(inner, dataset.indices)
    if not _has_loader(dataset):
        raise UsageError(f"{type(dataset).__name__} reads, decodes and transforms in one go; ImageFolder does not")
    view = copy.copy(dataset)
    view.loader = kept = read(dataset.loader, [dataset.samples[index][0] for index in picked])
    view[picked[0]]
    if not kept.asked:
        raise UsageError(f"{type(dataset).__name__} has a loader and does not use it for its samples")
    kept.asked = 0
    return view


class _Kept:
    """Takes the place of a data set's ``loader``: path -> what was kept of it."""

    def __init__(self) -> None:
        self.asked = 0
        self.kept: dict[str, Any] = {}

    def __call__(self, path: Any) -> Any:
        self.asked += 1
        return self.kept[os.fspath(path)]


class _KeptFiles(_Kept):
    """As torchvision's ``pil_loader``, of files that have been read."""

    def __call__(self, path: Any) -> Any:
        from PIL import Image

        with io.BytesIO(super().__call__(path)) as file:
            return Image.open(file).convert("RGB")


def _images_of(load: Callable[[Any], Any], paths: list[Any]) -> _Kept:
    found = _Kept()
    for path in paths:
        image = load(path)
        if callable(getattr(image, "load", None)):  # Pillow decodes when it is first asked for a pixel
            image.load()
        found.kept[os.fspath(path)] = image
    return found


def _bytes_of(load: Any, paths: list[Any]) -> _Kept:
    if getattr(load, "__name__", "") not in _PIL_LOADERS or not str(load.__module__).startswith("torchvision."):
        raise UsageError("the data set's own function reads and decodes a file in one go")
    found = _KeptFiles()
    for path in paths:
        with open(path, "rb") as file:
            found.kept[os.fspath(path)] = file.read()
    return found
