"""Decode, crop, resize, flip and normalise for the loaders that leave it to the user: the fastest from PyPI's packages.

``fill(data, index, out)`` writes the JPEG ``data`` into ``out`` ``[3, size, size]``, uint8 or float32 and normalised.
The crop of a sample index is pipetune's, which draws from torchvision's distribution at next to no cost.
"""

from __future__ import annotations

import threading
from typing import Any

import cv2
import numpy as np
import simplejpeg
import torch

from pipetune.decoders.crop import draw_crop
from pipetune.decoders.reduced import divisor_for, reduced_size, window_of
from pipetune.records.imagenet import MEAN, STD

cv2.setNumThreads(0)
_own = threading.local()
_SCALE = [1 / (255 * std) for std in STD]
_SHIFT = [-mean / std for mean, std in zip(MEAN, STD, strict=True)]


def bilinear(data: bytes, index: int, out: np.ndarray[Any, Any]) -> None:
    """OpenCV's bilinear resize, without antialiasing, and libjpeg-turbo's shortcuts, as ``jpeg-roi-fast`` has them.

    Where the crop is twice as large as the result or more, the image is decoded at a half, a quarter or an eighth.
    """
    height, width = simplejpeg.decode_jpeg_header(data)[:2]
    crop = draw_crop(0, index, height, width)
    size = out.shape[1]
    factor = divisor_for(crop, size)
    image = simplejpeg.decode_jpeg(
        data, "RGB", fastdct=True, fastupsample=True, min_factor=factor,
        min_height=reduced_size(height, factor) if factor > 1 else 0,
        min_width=reduced_size(width, factor) if factor > 1 else 0, buffer=_memory(),
    )  # fmt: skip
    window = window_of(image, crop, factor)
    small = cv2.resize(window, (size, size), interpolation=cv2.INTER_LINEAR)
    _write(cv2.flip(small, 1) if crop.flip else small, out)


def antialiased(data: bytes, index: int, out: np.ndarray[Any, Any]) -> None:
    """torch's antialiased resize of uint8 pixels, vectorised like Pillow-SIMD's; faster than ``INTER_AREA``."""
    from torchvision.transforms.v2 import functional  # here: the other function does not need it, and takes less memory

    image = simplejpeg.decode_jpeg(data, "RGB", buffer=_memory())
    crop = draw_crop(0, index, image.shape[0], image.shape[1])
    size = out.shape[1]
    pixels = torch.from_numpy(image).permute(2, 0, 1)
    small = functional.resized_crop(
        pixels, crop.top, crop.left, crop.height, crop.width, [size, size], antialias=True
    )  # fmt: skip
    rows = small.permute(1, 2, 0).contiguous().numpy()
    _write(cv2.flip(rows, 1) if crop.flip else rows, out)


def _memory() -> np.ndarray[Any, Any]:
    """This thread's memory to decode into; no photograph of the profiles is larger."""
    found: np.ndarray[Any, Any] | None = getattr(_own, "memory", None)
    if found is None:
        found = _own.memory = np.empty(32 << 20, np.uint8)
    return found


def _write(pixels: np.ndarray[Any, Any], out: np.ndarray[Any, Any]) -> None:
    for channel, plane in enumerate(cv2.split(pixels)):
        if out.dtype == np.uint8:
            out[channel] = plane
        else:
            cv2.addWeighted(
                plane, _SCALE[channel], plane, 0, _SHIFT[channel], dst=out[channel], dtype=cv2.CV_32F
            )  # fmt: skip
