"""Decoding a JPEG at a fraction of its size, where the crop is still as large as the training image then. Pure."""

from __future__ import annotations

from pipetune.decoders.contract import Array
from pipetune.decoders.crop import Crop

#: libjpeg's inverse transform at these fractions is vectorised; others cost more than they save.
DIVISORS = (8, 4, 2)


def divisor_for(crop: Crop, size: int) -> int:
    """The largest divisor that leaves the crop ``size`` px high and wide; 1: decode it whole."""
    return next((number for number in DIVISORS if min(crop.height, crop.width) >= number * size), 1)


def reduced_size(length: int, divisor: int) -> int:
    """px of an edge after decoding at ``1 / divisor``; libjpeg rounds up."""
    return -(-length // divisor)


def window_of(image: Array, crop: Crop, divisor: int) -> Array:
    """The crop in an image that was decoded at ``1 / divisor``, to the nearest pixel."""
    top, left = round(crop.top / divisor), round(crop.left / divisor)
    return image[top : top + round(crop.height / divisor), left : left + round(crop.width / divisor)]
