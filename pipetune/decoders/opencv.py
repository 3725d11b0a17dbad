"""OpenCV: ``imdecode`` (libjpeg-turbo), bilinear ``resize`` without antialiasing, and normalisation in one pass.

Without antialiasing a large window shrunk to the training size aliases a little; the contract test bounds the
difference to the reference. OpenCV's antialiasing resize (``INTER_AREA``) would cost about a quarter of the rate.
The orientation is that of the index: OpenCV 4.10 leaves a turned WebP as it is, and libraries read damaged EXIF
differently.
"""

from __future__ import annotations

import cv2
import numpy as np

from pipetune.decoders.contract import Array, Photo, Window
from pipetune.decoders.cv2_pixels import resize_into, turn_upright

AS_STORED = cv2.IMREAD_IGNORE_ORIENTATION
"""Flag with which OpenCV does not turn an image by the EXIF orientation that it reads itself."""


def load(photo: Photo, window: Window, out: Array) -> None:
    """Decode, crop, resize (bilinear) and flip."""
    transform(decode_whole(photo), window, out)


def decode_whole(photo: Photo) -> Array:
    """The upright image as uint8 BGR ``[height, width, 3]``."""
    image: Array | None = cv2.imdecode(np.frombuffer(photo.read(), np.uint8), cv2.IMREAD_COLOR | AS_STORED)
    if image is None:
        raise ValueError("OpenCV cannot read this file")
    return turn_upright(image, photo.orientation)


def transform(image: Array, window: Window, out: Array) -> None:
    """Crop, resize (bilinear), flip and normalise."""
    top, left, height, width, flip = window(image.shape[0], image.shape[1])
    resize_into(image[top : top + height, left : left + width], out, flip=flip, bgr=True)
