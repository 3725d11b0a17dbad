"""Loaders that leave stages out, for ``pipetune explain``: what comes before them lies in memory already.

What a stage costs is the difference between the loader with it and the loader without it. So the rest of a loader is as
it always is: its workers, its queues, the order of samples and their crops.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from pipetune.datasets.index import ImageSet
from pipetune.decoders.contract import Array, DecodeFunction, TransformFunction, bad_image
from pipetune.decoders.crop import draw_crop
from pipetune.decoders.layout import Layout, layout_of
from pipetune.loaders.contract import Batch, Loader
from pipetune.loaders.new_memory import unfilled
from pipetune.loaders.open_loader import open_endless, order_of
from pipetune.loaders.photos import Photos
from pipetune.loaders.torch_processes import TorchLoader, settings_of
from pipetune.records.explanation import DECODE, FETCH, HAND_OVER, TRANSFORM
from pipetune.records.sweep import Candidate, Workload


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
    if stages == (FETCH,):
        return open_endless(candidate, workload, _Read(images, layout, workload.seed))
    if FETCH in stages:
        return open_endless(candidate, workload, Photos(images, decoder.load, layout, workload.seed, fill_some))
    if DECODE in stages:
        held = Photos(images, decoder.load, layout, workload.seed, fill_some, hold=True)
        return open_endless(candidate, workload, held)
    if TRANSFORM in stages:
        if not hasattr(decoder, "decode_whole"):
            raise ValueError(f"{candidate.backend} decodes and transforms in one go")
        decoded = _Decoded(images, layout, workload.seed, decoder.decode_whole, decoder.transform)
        return open_endless(candidate, workload, decoded)
    nothing = _Unfilled(images, layout, workload.seed)
    if stages == (HAND_OVER,) and not candidate.in_place:
        return _open_unfilled(candidate, workload, nothing, layout)
    return open_endless(candidate, workload, nothing)


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
        self, images: ImageSet, layout: Layout, seed: int, decode_whole: DecodeFunction, transform: TransformFunction
    ) -> None:
        super().__init__(images, _nothing, layout, seed)
        self._transform = transform
        # Copied: a decoder may have decoded into memory that its thread uses again.
        self._images = [
            copy.deepcopy(decode_whole(self._table.photo(position))) for position in range(len(self._table))
        ]

    def decode(self, sample_index: int, out: Array) -> None:
        image = self._images[sample_index % len(self)]
        self._transform(image, lambda height, width: draw_crop(self._seed, sample_index, height, width), out)


def _open_unfilled(candidate: Candidate, workload: Workload, photos: Photos, layout: Layout) -> Loader:
    """A plain ``DataLoader`` whose workers hand over batches of new memory, and do nothing else."""
    order, repeat = order_of(candidate, workload, len(photos))
    dataloader = DataLoader(
        _NewBatches(photos, layout), batch_size=None, sampler=order, collate_fn=_as_it_is, **settings_of(candidate)
    )
    return TorchLoader(
        dataloader, lambda got: Batch(*got), repeat=repeat, own_process=True,
        device_index=workload.accelerator.cuda_index,
    )  # fmt: skip


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
