"""How batches that lie on a CUDA device, or come from a library's own memory, are handed to a training loop."""

from __future__ import annotations

from collections.abc import Iterator

from pipetune.loaders.after_copies import AfterCopies
from pipetune.loaders.contract import Batch


def handed_over(batches: Iterator[Batch], device_index: int | None) -> Iterator[Batch]:
    """The batches, each kept until the CUDA device has done all that was queued with it; labels in page-locked memory,
    and so are images that the CPU has decoded.

    Why: a batch's memory on the device is written again as soon as the host has no reference to it, while the step on
    the batch may still be queued. DALI's tensors are its own memory (with ``exec_dynamic``), and it waits for no stream
    of torch's. Memory of torch's own would wait for streams that it is told of (``record_stream``), but for what was
    queued when the batch was dropped: a loop that copies on a side stream, and lets the current stream wait for it
    afterwards, needs the longer time of :mod:`pipetune.loaders.after_copies`.

    Args:
        device_index: of the CUDA device that the batches go to; ``None``: they go to none.
    """
    if device_index is None:
        yield from batches
        return
    copies = AfterCopies(device_index)
    for images, labels in batches:
        kept = copies.held(images) if images.is_cuda else copies.pinned(images.numpy())
        batch = Batch(kept, copies.pinned(labels.numpy()))
        del kept
        del images, labels
        yield batch
        del batch
        copies.asked()
