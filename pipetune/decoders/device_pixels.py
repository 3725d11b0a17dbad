"""From decoded pixels on a device to a batch: crop, turn, resize, mirror and normalise, with torch.

The functions run on any device, so their geometry is tested on the CPU. Pixels are resized as floats and rounded to
grey levels once, where Pillow rounds after each of its two passes: they differ by one level at most.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from pipetune.decoders.contract import StoredWindow
from pipetune.decoders.crop import Crops
from pipetune.decoders.layout import Layout
from pipetune.records.imagenet import MEAN, STD

_UPRIGHT = 1
#: Factor by which torch's kernel is asked to reduce an edge at most. Its shared memory (48 KiB) holds the weights of 32
#: pixels and their sums: ``32 (2 s + 1) + 33 (2 s + 1)`` floats for a factor ``s``. It refuses more than 94.
MAX_REDUCTION = 48


def find_stored_window(crop: Sequence[int], orientation: int, height: int, width: int) -> StoredWindow:
    """Where a window of the upright image lies in the image as it is stored.

    Args:
        crop: top, left, height and width of the window (px).
        orientation: EXIF, 1..8.
        height: of the upright image (px), and ``width``.
    """
    top, left, h, w = crop[:4]
    if orientation == _UPRIGHT:
        return StoredWindow(top, left, h, w)
    bottom, right = height - top - h, width - left - w
    return {
        2: StoredWindow(top, right, h, w),
        3: StoredWindow(bottom, right, h, w),
        4: StoredWindow(bottom, left, h, w),
        5: StoredWindow(left, top, w, h),
        6: StoredWindow(right, top, w, h),
        7: StoredWindow(right, bottom, w, h),
        8: StoredWindow(left, bottom, w, h),
    }[orientation]


def turn_upright(image: torch.Tensor, orientation: int) -> torch.Tensor:
    """The upright image ``[..., height, width]`` of one that is stored with an EXIF orientation."""
    if orientation in (5, 6, 7, 8):
        image = image.transpose(-1, -2)
    mirrored = {2: (-1,), 3: (-1, -2), 4: (-2,), 6: (-1,), 7: (-1, -2), 8: (-2,)}.get(orientation, ())
    return image.flip(mirrored) if mirrored else image


def resize_into(window: torch.Tensor, orientation: int, out: torch.Tensor) -> None:
    """Resize (bilinear, antialiased) a window as it is stored, and turn it upright.

    Args:
        window: uint8 ``[3, h, w]``, with any strides.
        orientation: EXIF, 1..8.
        out: float32 ``[3, size, size]``, contiguous: grey levels, not rounded.
    """
    size = [out.shape[-2], out.shape[-1]]
    # One kernel: `float()` would keep the strides of interleaved pixels.
    values = window.to(torch.float32, memory_format=torch.contiguous_format)
    values = _average_blocks(values, size)
    # As `torch.nn.functional.interpolate` calls it, into a given place: without a copy, and with less Python.
    torch._C._nn._upsample_bilinear2d_aa(values[None], size, False, out=out[None])
    if orientation != _UPRIGHT:
        out.copy_(turn_upright(out.clone(), orientation))


def _average_blocks(values: torch.Tensor, size: Sequence[int]) -> torch.Tensor:
    """An image ``[3, h, w]`` with averages of blocks of its pixels, so that no edge is too long to be resized at once.

    The weights of :data:`MAX_REDUCTION` pixels or more hardly change within a block: no grey level differs by one.
    """
    block = [math.ceil(edge / (MAX_REDUCTION * out)) for edge, out in zip(values.shape[-2:], size, strict=True)]
    if max(block) == 1:
        return values
    return torch.nn.functional.avg_pool2d(values[None], block, ceil_mode=True)[0]


class Finisher:
    """Makes a batch of resized images: rounded, mirrored, and normalised where the layout is of floats."""

    def __init__(self, layout: Layout, device: torch.device) -> None:
        self._layout = layout
        self._device = device
        self._mean, self._std = (
            torch.tensor([255 * value for value in values], device=device).view(1, 3, 1, 1) for values in (MEAN, STD)
        )

    def new_batch(self, count: int) -> torch.Tensor:
        """Memory for ``count`` resized images: float32 ``[count, 3, size, size]``."""
        size = self._layout.size
        return torch.empty((count, 3, size, size), dtype=torch.float32, device=self._device)

    def __call__(self, resized: torch.Tensor, crops: Crops) -> torch.Tensor:
        """The batch ``[count, 3, size, size]`` in the layout's type and order; ``resized`` is written to.

        Args:
            resized: grey levels.
            crops: the windows, of which column 4 says which images are mirrored.
        """
        resized.round_()
        flips = upload(np.ascontiguousarray(crops[:, 4] != 0), self._device).view(-1, 1, 1, 1)
        images = torch.where(flips, resized.flip(-1), resized)
        images = images.to(torch.uint8) if self._layout.uint8 else images.sub_(self._mean).div_(self._std)
        return images.contiguous(memory_format=torch.channels_last) if self._layout.channels_last else images


def upload(values: np.ndarray, device: torch.device) -> torch.Tensor:
    """An array on the device, copied in the order of the current stream."""
    tensor = torch.from_numpy(values)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor
