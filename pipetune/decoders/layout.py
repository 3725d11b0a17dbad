"""Layout: how the images of a batch lie in memory, and how one decoded image is written there.

A decoder always sees a sample's place as rows of RGB pixels (``[size, size, 3]``), so it writes into batches of any
order in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pipetune.decoders.contract import Array
from pipetune.records.imagenet import MEAN, STD
from pipetune.records.sweep import Candidate

if TYPE_CHECKING:
    import torch

_MEAN = np.array(MEAN, np.float32)
_STD = np.array(STD, np.float32)
_FULL = np.float32(255)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Edge of the square images (px), type and order of a batch's values."""

    size: int
    uint8: bool = False
    channels_last: bool = False

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of one value."""
        return np.dtype(np.uint8 if self.uint8 else np.float32)

    def shape(self, batch_size: int) -> tuple[int, int, int, int]:
        """Shape of a batch's memory."""
        return (batch_size, self.size, self.size, 3) if self.channels_last else (batch_size, 3, self.size, self.size)

    def sample(self, batch: Array, place: int) -> Array:
        """The place of one sample as ``[size, size, 3]``: contiguous with channels last, three planes otherwise."""
        found: Array = batch[place] if self.channels_last else batch[place].transpose(1, 2, 0)
        return found

    def samples(self, batch: Array, start: int, stop: int) -> Array:
        """The places ``start`` to ``stop``, as ``[stop - start, size, size, 3]``."""
        found: Array = batch[start:stop] if self.channels_last else batch[start:stop].transpose(0, 2, 3, 1)
        return found

    def images(self, batch: torch.Tensor) -> torch.Tensor:
        """A batch's memory as a model takes it: ``[B, 3, size, size]`` in either order."""
        return batch.permute(0, 3, 1, 2) if self.channels_last else batch


def layout_of(candidate: Candidate, image_size: int) -> Layout:
    """The layout of a candidate's batches."""
    return Layout(size=image_size, uint8=candidate.transfer == "uint8", channels_last=candidate.channels_last)


def write_pixels(pixels: Array, out: Array) -> None:
    """Copy uint8 RGB ``[size, size, 3]`` into a sample's place, normalised where that is float32.

    To the last bit ``ToTensor`` and ``Normalize`` of torchvision: the same three operations in the same order. Without
    torch, whose own threads are no help among loader workers.
    """
    if out.dtype == np.uint8:
        np.copyto(out, pixels)
        return
    if out.flags.c_contiguous:
        # As long rows: numpy's inner loop would otherwise run over three values at a time.
        size = len(out)
        rows, mean, std = out.reshape(size, -1), np.tile(_MEAN, size), np.tile(_STD, size)
        np.divide(pixels.reshape(size, -1), _FULL, out=rows)
        rows -= mean
        rows /= std
        return
    for channel in range(3):
        plane = out[..., channel]
        np.divide(pixels[..., channel], _FULL, out=plane)
        plane -= _MEAN[channel]
        plane /= _STD[channel]
