"""From an image that Pillow has opened to the upright RGB pixels that all decoders of pipetune make of it.

Loaders, packs and whatever is compared with either use these functions, so that a pack has the pixels that loaders see.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipetune.datasets.upright import TURNS

if TYPE_CHECKING:
    from PIL import Image


def to_rgb(image: Image.Image, orientation: int) -> Image.Image:
    """The upright image in RGB, without its transparency.

    Args:
        orientation: as the index has it, 1..8.
    """
    from PIL.Image import Transpose

    image = to_eight_bits(image).convert("RGB")
    return image.transpose(Transpose[TURNS[orientation]]) if orientation in TURNS else image


def to_eight_bits(image: Image.Image) -> Image.Image:
    """16-bit grey as 8-bit grey, by its upper byte as the other decoders do it; other images as they are.

    Pillow's own ``convert`` clips such pixels at 255: all but the darkest become white.
    """
    if not image.mode.startswith("I"):
        return image
    import numpy as np
    from PIL.Image import fromarray

    return fromarray((np.asarray(image).astype(np.uint32) >> 8).astype(np.uint8))
