"""Batches that this process decodes in place, into memory that is used again: no collating, no copy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch

from pipetune.decoders.layout import Layout
from pipetune.loaders.buffers import Buffers
from pipetune.loaders.contract import Batch
from pipetune.loaders.order import Order
from pipetune.loaders.photos import Photos

#: ``make(sample_indices, stopped)`` -> the batch; an incomplete one if ``stopped`` returns true meanwhile.
Make = Callable[[Sequence[int], Callable[[], bool]], Batch]


def batch_maker(photos: Photos, layout: Layout, batch_size: int, *, pinned: bool, ahead: int) -> Make:
    """A function that makes a batch in reused memory, or in page-locked memory, which torch itself reuses.

    Args:
        ahead: number of batches that are made before they are asked for; the training loop holds one more.
    """
    buffers = Buffers(layout, batch_size, enough=ahead and ahead + 1)

    def make(sample_indices: Sequence[int], stopped: Callable[[], bool]) -> Batch:
        labels = torch.from_numpy(photos.labels(sample_indices))
        if pinned:
            dtype = torch.uint8 if layout.uint8 else torch.float32
            images = torch.empty(layout.shape(len(sample_indices)), dtype=dtype, pin_memory=True)
            photos.fill(sample_indices, images.numpy(), stopped)
            return Batch(layout.images(images), labels)
        array = buffers.take()
        try:
            photos.fill(sample_indices, array, stopped)
        except BaseException:
            buffers.give_back(array)
            raise
        return Batch(layout.images(buffers.lend(array, len(sample_indices))), labels)

    return make


class InlineLoader:
    """The training process makes each batch when it asks for it. See :class:`pipetune.loaders.contract.Loader`."""

    def __init__(self, order: Order, make: Make) -> None:
        self._order = order
        self._make = make
        self._open = True

    def __iter__(self) -> Iterator[Batch]:
        if not self._open:
            raise ValueError("this loader is closed")
        for sample_indices in self._order:
            if not self._open:
                return
            yield self._make(sample_indices, lambda: False)

    def close(self) -> None:
        """End the iteration; there are no workers."""
        self._open = False
