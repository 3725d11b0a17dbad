"""What a loader must offer, and the transform that all of them perform.

The module of a loader that drives decoders has ``open_batches(photos, candidate, order, layout, *, repeat, own_process,
device_index) -> Loader`` (see :func:`pipetune.loaders.open_loader.open_batches`); where it drives only decoders that
name it, also ``open_trial``, as below. One with a decoder has

- ``open_loader(candidate, workload, images) -> Loader``: the endless stream that is measured;
- ``open_trial(candidate, workload) -> Trial``: finds the images that do not decode;
- ``open_training(candidate, images, order, *, image_size, seed, device_index) -> Loader``, where one can train with
  it;
- ``require()``, where it needs something: raises ``PipetuneError`` if that is missing.

Each batch is ``images`` ``[batch, 3, size, size]``: RGB, float32 and normalised or uint8 as the candidate's
``transfer`` says, on the CPU (page-locked where they go to a CUDA device) or already on the workload's CUDA device; and
``labels`` int64 ``[batch]``, on the CPU likewise. The measured stream is the same for every backend, loader, number of
workers and prefetch depth: :class:`pipetune.loaders.order.EndlessOrder` gives the samples and
:func:`pipetune.decoders.crop.draw_crop` the window and flip of each, both from the workload's seed alone. EXIF rotation
is applied; grey and CMYK images become RGB.

Why endless: an epoch's end drains the loader's queues, and with a small data set the gap between epochs would decide
the rate. With workers that end with each epoch the gap counts, because there it is part of the loader.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:  # a loader of numpy arrays works without it
    import torch


class Batch(NamedTuple):
    """One batch: ``images`` float32 or uint8 ``[B, 3, S, S]``, ``labels`` int64 ``[B]``."""

    images: torch.Tensor
    labels: torch.Tensor


class Loader(Protocol):
    """An open loader. ``close`` ends its workers; it is safe to call twice and in the middle of iteration."""

    def __iter__(self) -> Iterator[Batch]: ...

    def close(self) -> None:
        """End the workers and drop what is prefetched."""
