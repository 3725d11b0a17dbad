"""OpenCV: ``imdecode`` (libjpeg-turbo), bilinear ``resize`` without antialiasing, and normalisation in one pass.

Without antialiasing a large window shrunk to the training size aliases a little; the contract test bounds the
difference to the reference. OpenCV's antialiasing resize (``INTER_AREA``) would cost about a quarter of the rate.
What is to be rotated and is no JPEG, Pillow decodes: OpenCV 4.10 leaves a WebP as it is.
"""

from __future__ import annotations

import cv2
import numpy as np

from pipetune.decoders import pillow
from pipetune.decoders.contract import Array, Photo, Window
from pipetune.decoders.cv2_pixels import resize_into

_UPRIGHT = 1


def load(photo: Photo, window: Window, out: Array) -> None:
    """Decode, crop, resize (bilinear) and flip."""
    transform(decode_whole(photo), window, out)


def decode_whole(photo: Photo) -> Array:
    """The upright image as uint8 BGR ``[height, width, 3]``."""
    if photo.orientation != _UPRIGHT and not photo.is_jpeg:
        turned: Array = cv2.cvtColor(np.asarray(pillow.decode_whole(photo)), cv2.COLOR_RGB2BGR)
        return turned
    image: Array | None = cv2.imdecode(
        np.frombuffer(photo.read(), np.uint8), cv2.IMREAD_COLOR
    )  # BGR, EXIF rotation applied
    if image is None:
        raise ValueError("OpenCV cannot read this file")
    return image


def transform(image: Array, window: Window, out: Array) -> None:
    """Crop, resize (bilinear), flip and normalise."""
    top, left, height, width, flip = window(image.shape[0], image.shape[1])
    resize_into(image[top : top + height, left : left + width], out, flip=flip, bgr=True)
