"""simplejpeg: libjpeg-turbo 3 behind a thin binding, and OpenCV for the rest: bilinear resize without antialiasing.

The decoder releases the GIL and writes into memory that each thread uses again. OpenCV decodes what is no JPEG, is to
be rotated or is damaged, or raises the error.
"""

from __future__ import annotations

import contextlib
import threading
from typing import NamedTuple

import numpy as np
import simplejpeg

from pipetune.decoders import opencv
from pipetune.decoders.contract import Array, Photo, Window
from pipetune.decoders.cv2_pixels import resize_into

_UPRIGHT = 1
#: Memory for a decoded image: at first (1.4 megapixels), and at most; a larger image gets memory of its own.
_FIRST_BYTES, _MAX_BYTES = 4 << 20, 64 << 20
_own = threading.local()


def load(photo: Photo, window: Window, out: Array) -> None:
    """Decode, crop, resize (bilinear) and flip."""
    transform(decode_whole(photo), window, out)


class Decoded(NamedTuple):
    """An upright image."""

    pixels: Array
    """uint8 ``[height, width, 3]``, valid in this thread until the next image is decoded."""
    bgr: bool
    """Its channels are blue, green, red."""


def decode_whole(photo: Photo) -> Decoded:
    """The upright image."""
    image = decode(photo.read()) if photo.is_jpeg and photo.orientation == _UPRIGHT else None
    return Decoded(opencv.decode_whole(photo), bgr=True) if image is None else Decoded(image, bgr=False)


def transform(image: Decoded, window: Window, out: Array) -> None:
    """Crop, resize (bilinear), flip and normalise."""
    pixels, bgr = image
    top, left, height, width, flip = window(pixels.shape[0], pixels.shape[1])
    resize_into(pixels[top : top + height, left : left + width], out, flip=flip, bgr=bgr)


def decode(data: memoryview) -> Array | None:
    """A JPEG as uint8 RGB ``[height, width, 3]``, valid in this thread until the next call; ``None``: it is damaged."""
    with contextlib.suppress(ValueError):  # too small a buffer, or a damaged image
        image: Array = simplejpeg.decode_jpeg(data, "RGB", buffer=memory(0))
        return image
    with contextlib.suppress(ValueError):
        image = simplejpeg.decode_jpeg(data, "RGB")
        memory(image.nbytes)  # for the next one
        return image
    return None


def memory(size: int) -> Array:
    """The calling thread's memory for a decoded image: at least ``size`` bytes, or as many as it has."""
    found: Array | None = getattr(_own, "memory", None)
    if size > _MAX_BYTES:
        return np.empty(size, np.uint8)
    if found is None or len(found) < size:
        found = _own.memory = np.empty(max(size, _FIRST_BYTES), np.uint8)
    return found
