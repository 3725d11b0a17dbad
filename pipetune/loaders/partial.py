"""Loaders that leave stages out, for ``pipetune explain``: what comes before them lies in memory already.

What a stage costs is the difference between the loader with it and the loader without it. So the rest of a loader is as
it always is: its workers, its queues, the order of samples and their crops.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import DataLoader, Dataset

from pipetune.augmentation.recipes import BASIC, loaders_recipe
from pipetune.datasets.index import ImageSet
from pipetune.decoders.contract import Array, DecodeFunction, LoadFunction, TransformFunction, bad_image
from pipetune.decoders.crop import draw_crop
from pipetune.decoders.layout import Layout, layout_of, write_pixels
from pipetune.loaders.contract import Batch, Loader
from pipetune.loaders.new_memory import unfilled
from pipetune.loaders.open_loader import open_endless, order_of
from pipetune.loaders.photos import Photos
from pipetune.loaders.torch_processes import TorchLoader, settings_of
from pipetune.records.explanation import AUGMENT, DECODE, FETCH, HAND_OVER, NORMALISE, TRANSFORM
from pipetune.records.sweep import Candidate, Workload

#: Memory that samples which are ready may take (bytes): far more than the processor's caches.
_READY_BYTES = 128 << 20


def open_partial(
    candidate: Candidate, workload: Workload, images: ImageSet, decoder: Any, stages: tuple[str, ...]
) -> Loader:
    """The candidate's loader, of which only these stages are done.

    Args:
        decoder: the module of its decoder.
        stages: of :data:`pipetune.records.explanation.STAGES`: the last ones, or ``fetch`` alone.

    Raises:
        ValueError: the decoder does not decode and transform one after the other.
    """
    layout = layout_of(candidate, workload.image_size)
    fill_some = getattr(decoder, "fill_some", None)
    augment = loaders_recipe(candidate, workload.augment)
    if stages == (FETCH,):
        return open_endless(candidate, workload, _Read(images, layout, workload.seed))
    if FETCH in stages or DECODE in stages:
        photos = Photos(
            images, decoder.load, layout, workload.seed, fill_some, hold=FETCH not in stages, augment=augment
        )  # fmt: skip
        return open_endless(candidate, workload, photos)
    if TRANSFORM in stages:
        if not hasattr(decoder, "decode_whole"):
            raise ValueError(f"{candidate.backend} decodes and transforms in one go")
        decoded = _Decoded(images, layout, workload.seed, decoder.decode_whole, decoder.transform, augment)
        return open_endless(candidate, workload, decoded)
    if AUGMENT in stages or (NORMALISE in stages and augment != BASIC):
        crops = _Cropped(images, layout, workload.seed, decoder.load, augment if AUGMENT in stages else BASIC)
        return open_endless(candidate, workload, crops)
    nothing = _Unfilled(images, layout, workload.seed)
    if candidate.in_place:
        return open_endless(candidate, workload, nothing)
    if stages == (HAND_OVER,):
        return _open_plain(_NewBatches(nothing, layout), candidate, workload, len(nothing), collated=False)
    ready = _Ready(Photos(images, decoder.load, layout, workload.seed, fill_some), layout)
    return _open_plain(ready, candidate, workload, len(nothing), collated=True)


class _Unfilled(Photos):
    """Leaves each sample's place in a batch as it is."""

    def __init__(self, images: ImageSet, layout: Layout, seed: int) -> None:
        super().__init__(images, _nothing, layout, seed)

    def fill(self, sample_indices: Sequence[int], batch: Array, stopped: Callable[[], bool] = lambda: False) -> None:
        pass

    def decode(self, sample_index: int, out: Array) -> None:
        pass


def _nothing(photo: Any, window: Any, out: Any) -> None:
    pass


class _Read(Photos):
    """Reads each sample's file, and does nothing with it."""

    def __init__(self, images: ImageSet, layout: Layout, seed: int) -> None:
        super().__init__(images, _nothing, layout, seed)

    def decode(self, sample_index: int, out: Array) -> None:
        photo = self._table.photo(sample_index % len(self))
        if not len(photo.read()):
            raise bad_image(photo.path, "it is empty")


class _Decoded(Photos):
    """Holds all images decoded, and does with them what comes after that."""

    def __init__(
        self, images: ImageSet, layout: Layout, seed: int, decode_whole: DecodeFunction, transform: TransformFunction,
        augment: str,
    ) -> None:  # fmt: skip
        super().__init__(images, _nothing, layout, seed, augment=augment)
        self._transform = transform
        self._images = [_kept(decode_whole(self._table.photo(position))) for position in range(len(self._table))]

    def _crop(self, sample_index: int, out: Array) -> None:
        image = self._images[sample_index % len(self)]
        if isinstance(image, _Values):
            image = torch.from_numpy(image.values)
        self._transform(image, lambda height, width: draw_crop(self._seed, sample_index, height, width), out)


class _Cropped(Photos):
    """Holds crops of some images, and does with them what comes after that."""

    def __init__(self, images: ImageSet, layout: Layout, seed: int, load: LoadFunction, augment: str) -> None:
        super().__init__(images, _nothing, layout, seed, augment=augment)
        pixels = replace(layout, uint8=True, channels_last=True)
        size = int(np.prod(pixels.shape(1)))
        self._crops = np.empty(pixels.shape(max(1, min(len(self), _READY_BYTES // size))), np.uint8)
        Photos(images, load, pixels, seed).fill(range(len(self._crops)), self._crops)

    def _crop(self, sample_index: int, out: Array) -> None:
        write_pixels(self._crops[sample_index % len(self._crops)], out)


class _Values(NamedTuple):
    """A tensor's values: as a tensor each would take a file descriptor on its way to a worker that is not forked."""

    values: npt.NDArray[Any]


def _kept(image: Any) -> Any:
    """A decoded image with memory of its own: a decoder may have decoded into what its thread uses again."""
    return _Values(image.numpy().copy()) if isinstance(image, torch.Tensor) else copy.deepcopy(image)


def _open_plain(
    dataset: Dataset[Any], candidate: Candidate, workload: Workload, n_images: int, *, collated: bool
) -> Loader:  # fmt: skip
    """A plain ``DataLoader`` over samples that torch collates, or over batches."""
    order, repeat = order_of(candidate, workload, n_images)
    over: dict[str, Any] = (
        {"batch_sampler": order} if collated else {"batch_size": None, "sampler": order, "collate_fn": _as_it_is}
    )
    dataloader = DataLoader(dataset, **over, **settings_of(candidate))
    return TorchLoader(
        dataloader, lambda got: Batch(*got), repeat=repeat, own_process=True,
        device_index=workload.accelerator.cuda_index,
    )  # fmt: skip


class _Ready(Dataset[tuple[torch.Tensor, int]]):
    """Sample index -> one of some samples that are ready, with the label of its own."""

    def __init__(self, photos: Photos, layout: Layout) -> None:
        self._photos = photos
        size = max(1, layout.dtype.itemsize * int(np.prod(layout.shape(1))))
        count = max(1, min(len(photos), _READY_BYTES // size))
        self._samples = np.empty(layout.shape(count), layout.dtype)
        photos.fill(range(count), self._samples)

    def __getitem__(self, sample_index: int) -> tuple[torch.Tensor, int]:
        place = sample_index % len(self._samples)
        return torch.from_numpy(self._samples[place]), self._photos.label(sample_index)


class _NewBatches(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Sample indices -> a batch in new memory, as torch collates into it: shared, where a worker has made it."""

    def __init__(self, photos: Photos, layout: Layout) -> None:
        self._photos = photos
        self._layout = layout

    def __getitem__(self, sample_indices: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        dtype = torch.uint8 if self._layout.uint8 else torch.float32
        images = unfilled(self._layout.shape(len(sample_indices)), dtype)
        return images, torch.from_numpy(self._photos.labels(sample_indices))


def _as_it_is(batch: Any) -> Any:
    return batch
