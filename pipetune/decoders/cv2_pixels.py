"""Resizing, mirroring and normalising with OpenCV, from a decoded window into a sample's place in a batch.

Every step writes into memory that is there already: each thread has one small image of its own, and where the batch
takes bytes pixel by pixel (uint8, channels last) the resize writes into the batch itself.
"""

from __future__ import annotations

import threading

import cv2
import numpy as np

from pipetune.decoders.contract import Array
from pipetune.records.imagenet import MEAN, STD

# Loader workers are the parallelism; OpenCV's own threads inside each of them only fight over the cores, and its
# thread pool does not survive a fork (pytorch issue 45198).
cv2.setNumThreads(0)

# (x / 255 - mean) / std as one multiply-add per channel.
_SCALE = [1 / (255 * std) for std in STD]
_SHIFT = [-mean / std for mean, std in zip(MEAN, STD, strict=True)]
_own = threading.local()
#: From this orientation on, width and height change places.
_SWAPPED = 5
#: EXIF orientation -> OpenCV's number of the axes that are mirrored, after the change of places.
_FLIPS = {2: 1, 3: -1, 4: 0, 6: 1, 7: -1, 8: 0}


def turn_upright(image: Array, orientation: int) -> Array:
    """The upright image of one that is stored with an EXIF orientation, 1..8."""
    if orientation >= _SWAPPED:
        image = cv2.transpose(image)
    axis = _FLIPS.get(orientation)
    return image if axis is None else cv2.flip(image, axis)


def resize_into(window: Array, out: Array, *, flip: bool, bgr: bool, interpolation: int = cv2.INTER_LINEAR) -> None:
    """Resize a uint8 window ``[h, w, 3]`` (rows may be apart) into ``out``, see :meth:`Layout.sample`.

    Args:
        flip: mirror it left to right.
        bgr: the window's channels are blue, green, red.
    """
    size = len(out)
    by_pixel = out.flags.c_contiguous
    straight = by_pixel and out.dtype == np.uint8
    small = out if straight else _small(size)
    cv2.resize(window, (size, size), dst=small, interpolation=interpolation)
    if flip:
        cv2.flip(small, 1, dst=small)
    if by_pixel:
        if bgr:
            cv2.cvtColor(small, cv2.COLOR_BGR2RGB, dst=small)
        if not straight:
            # One pass per operation over whole pixels; OpenCV takes a value per channel.
            cv2.subtract(small, _FOUR_MEANS, dst=out, dtype=cv2.CV_32F)
            cv2.multiply(out, _FOUR_SCALES, dst=out)
        return
    for channel in range(3):
        plane = cv2.extractChannel(small, 2 - channel if bgr else channel)
        if out.dtype == np.uint8:
            out[..., channel] = plane
        else:
            # cv2 does the arithmetic in one vectorised pass straight into the batch; numpy and torch need several.
            cv2.addWeighted(
                plane, _SCALE[channel], plane, 0, _SHIFT[channel], dst=out[..., channel], dtype=cv2.CV_32F
            )  # fmt: skip


_FOUR_MEANS = (*(255 * mean for mean in MEAN), 0.0)
_FOUR_SCALES = (*_SCALE, 1.0)


def _small(size: int) -> Array:
    image: Array | None = getattr(_own, "image", None)
    if image is None or len(image) != size:
        image = _own.image = np.empty((size, size, 3), np.uint8)
    return image
