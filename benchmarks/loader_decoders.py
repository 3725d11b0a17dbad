"""Decode, crop, resize, flip and normalise for the loaders that leave it to the user: the fastest from PyPI's packages.

``fill(data, ticket, out)`` writes the JPEG ``data`` into ``out`` ``[3, size, size]``, uint8 or float32 and normalised.
The crop of a ticket is pipetune's, which is torchvision's distribution for next to nothing.
"""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import simplejpeg
import torch

from pipetune.backends.contract import MEAN, STD
from pipetune.backends.crop import draw_crop

cv2.setNumThreads(0)
_SCALE = [1 / (255 * std) for std in STD]
_SHIFT = [-mean / std for mean, std in zip(MEAN, STD, strict=True)]


def bilinear(data: bytes, ticket: int, out: np.ndarray[Any, Any]) -> None:
    """OpenCV's bilinear resize, without antialiasing."""
    image = simplejpeg.decode_jpeg(data, "RGB")
    crop = draw_crop(0, ticket, image.shape[0], image.shape[1])
    size = out.shape[1]
    window = image[crop.top : crop.top + crop.height, crop.left : crop.left + crop.width]
    small = cv2.resize(window, (size, size), interpolation=cv2.INTER_LINEAR)
    _write(cv2.flip(small, 1) if crop.flip else small, out)


def antialiased(data: bytes, ticket: int, out: np.ndarray[Any, Any]) -> None:
    """torch's antialiased resize of uint8 pixels, which is vectorised as Pillow-SIMD's; faster than ``INTER_AREA``."""
    from torchvision.transforms.v2 import functional  # here: the other one does without, and takes less memory

    image = simplejpeg.decode_jpeg(data, "RGB")
    crop = draw_crop(0, ticket, image.shape[0], image.shape[1])
    size = out.shape[1]
    pixels = torch.from_numpy(image).permute(2, 0, 1)
    small = functional.resized_crop(
        pixels, crop.top, crop.left, crop.height, crop.width, [size, size], antialias=True
    )  # fmt: skip
    rows = small.permute(1, 2, 0).contiguous().numpy()
    _write(cv2.flip(rows, 1) if crop.flip else rows, out)


def _write(pixels: np.ndarray[Any, Any], out: np.ndarray[Any, Any]) -> None:
    for channel, plane in enumerate(cv2.split(pixels)):
        if out.dtype == np.uint8:
            out[channel] = plane
        else:
            cv2.addWeighted(
                plane, _SCALE[channel], plane, 0, _SHIFT[channel], dst=out[channel], dtype=cv2.CV_32F
            )  # fmt: skip
