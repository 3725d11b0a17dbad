"""Batches that this process decodes in place, into memory that is used again: no collating, no copy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pipetune.candidates.fit import beyond_workers
from pipetune.decoders.contract import Array
from pipetune.decoders.layout import Layout
from pipetune.loaders.buffers import Buffers
from pipetune.loaders.contract import Batch
from pipetune.loaders.order import Order
from pipetune.loaders.photos import Photos

if TYPE_CHECKING:
    from pipetune.loaders.after_copies import AfterCopies

#: ``make(samples, stopped)`` -> the batch of what an order yields, mostly sample indices; an incomplete one if
#: ``stopped`` returns true meanwhile.
Make = Callable[[Any, Callable[[], bool]], Batch]


def batch_maker(photos: Photos, layout: Layout, batch_size: int, *, copies: AfterCopies | None, ahead: int) -> Make:
    """A function that makes a batch in reused memory, page-locked where it will be copied to a CUDA device.

    Args:
        copies: to that device; ``None``: there is none.
        ahead: number of batches that are made before they are asked for; 0: it is the training loop that calls.
    """
    import torch

    enough = ahead + (1 if copies is None else beyond_workers(on_gpu=True))
    buffers = Buffers(layout, batch_size, enough=ahead and enough, copies=copies)

    def make(sample_indices: Sequence[int], stopped: Callable[[], bool]) -> Batch:
        array = _filled(photos, buffers, sample_indices, stopped)
        found = photos.targets(sample_indices)
        labels = torch.from_numpy(found) if copies is None else copies.pinned(found)
        return Batch(layout.images(buffers.lend(array, len(sample_indices))), labels)

    return make


def array_maker(photos: Photos, layout: Layout, batch_size: int, *, ahead: int) -> Make:
    """The same of numpy arrays ``[B, S, S, 3]``, without torch.

    Args:
        layout: with channels last.
        ahead: see :func:`batch_maker`.
    """
    buffers = Buffers(layout, batch_size, enough=ahead and ahead + 1)

    def make(sample_indices: Sequence[int], stopped: Callable[[], bool]) -> Batch:
        array = _filled(photos, buffers, sample_indices, stopped)
        images, labels = buffers.lend_array(array, len(sample_indices)), photos.targets(sample_indices)
        return Batch(images, labels)

    return make


def _filled(
    photos: Photos, buffers: Buffers, sample_indices: Sequence[int], stopped: Callable[[], bool]
) -> Array:  # fmt: skip
    """Memory with the samples decoded into it; free again where one does not decode."""
    array = buffers.take()
    try:
        photos.fill(sample_indices, array, stopped)
    except BaseException:
        buffers.give_back(array)
        raise
    return array


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
