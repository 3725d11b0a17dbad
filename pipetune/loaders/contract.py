"""What a decode backend must offer, and the transform that all of them perform.

A module named by the registry has ``load``, which decodes one sample
(:data:`pipetune.loaders.photos.LoadFunction`), and all kinds of workers are there for it. It may have ``fill_some``,
too, which decodes several at once (:data:`pipetune.loaders.photos.FillFunction`). One that is a loader of its own has
``open_loader(candidate, workload, images) -> Loader`` instead, and ``open_trial(workload) -> Trial`` for the day on
which an image does not decode. Either may have ``require()``, which raises ``PipetuneError`` where something is
missing. :mod:`pipetune.loaders.opening` knows the difference.

Each batch of an endless stream is ``images`` ``[batch, 3, size, size]``: RGB, float32 and normalised or uint8 as the
candidate's ``transfer`` says, on the CPU or already on the workload's CUDA device; and ``labels`` int64 ``[batch]``.
The stream is the same for every backend, number and kind of workers and prefetch depth:
:class:`pipetune.loaders.order.EndlessOrder` gives the samples and :func:`pipetune.decoders.crop.draw_crop` the window
and flip of each, both from the workload's seed alone. EXIF rotation is applied; grey and CMYK images become RGB.

Why endless: an epoch's end drains the loader's queues. With a small data set the gap between epochs would decide the
rate; here it is kept out, as the first batch is. Workers that end with the epoch cannot do that: with them it counts.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

import torch

from pipetune.datasets.index import ImageFile

#: ImageNet channel means and standard deviations in 0..1, RGB (torchvision's reference training recipe).
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)


class Batch(NamedTuple):
    """One batch: ``images`` float32 or uint8 ``[B, 3, S, S]``, ``labels`` int64 ``[B]``."""

    images: torch.Tensor
    labels: torch.Tensor


class Loader(Protocol):
    """An open loader. ``close`` ends its workers; it is safe to call twice and in the middle of iteration."""

    def __iter__(self) -> Iterator[Batch]: ...

    def close(self) -> None:
        """End the workers and drop what is prefetched."""


#: Decodes one image: why it cannot be decoded, or ``None``. It raises where the machine lacks something.
Trial = Callable[[ImageFile], str | None]


class BadImage(Exception):
    """An image could not be decoded; the text names the file.

    It takes the text alone because torch rebuilds a worker's exception in the main process from its text.
    """


def bad_image(path: str, reason: object) -> BadImage:
    """The error for a file that does not decode."""
    return BadImage(f"{BAD_IMAGE_PREFIX}{path!r}: {reason}")


def is_shortage(error: Exception) -> bool:
    """The machine's fault and not the image's: no memory, no descriptors, a disk or network that fails."""
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in _SHORTAGES)


_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.ESTALE)
#: How a :class:`BadImage` begins, so that the child recognises one inside a library's own error text.
BAD_IMAGE_PREFIX = "cannot decode image "
