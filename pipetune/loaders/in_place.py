"""Batches that this process decodes in place, into memory that is used again: no collating, no copy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch

from pipetune.decoders.layout import Layout
from pipetune.loaders.buffers import Buffers
from pipetune.loaders.contract import Batch
from pipetune.loaders.order import Order
from pipetune.loaders.photos import Photos

#: ``make(tickets, stopped)`` -> the batch, or ``None`` where it was stopped meanwhile.
Make = Callable[[Sequence[int], Callable[[], bool]], Batch]


def batch_maker(photos: Photos, layout: Layout, batch_size: int, *, pinned: bool, ahead: int) -> Make:
    """How a batch is made in this process: in reused memory, or in page-locked memory, which torch itself reuses.

    Args:
        ahead: batches that are made before they are asked for; the training loop has one more.
    """
    buffers = Buffers(layout, batch_size, usual=ahead and ahead + 1)

    def make(tickets: Sequence[int], stopped: Callable[[], bool]) -> Batch:
        labels = torch.from_numpy(photos.labels(tickets))
        if pinned:
            dtype = torch.uint8 if layout.uint8 else torch.float32
            images = torch.empty(layout.shape(len(tickets)), dtype=dtype, pin_memory=True)
            photos.fill(tickets, images.numpy(), stopped)
            return Batch(layout.images(images), labels)
        array = buffers.take()
        try:
            photos.fill(tickets, array, stopped)
        except BaseException:
            buffers.give_back(array)
            raise
        return Batch(layout.images(buffers.lend(array, len(tickets))), labels)

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
        for tickets in self._order:
            if not self._open:
                return
            yield self._make(tickets, lambda: False)

    def close(self) -> None:
        """Nothing runs."""
        self._open = False
