"""OpenCV's reduced decoding: a JPEG whose crop is twice the training size or more at a half, a quarter or an eighth.

Only the low frequencies are transformed then. The entropy decoder, two thirds and more of the time, still reads all of
the file, so the gain is some 20 % of decoding at most, and none where crops are small. The rest is as ``opencv``.
"""

from __future__ import annotations

import cv2
import numpy as np

from pipetune.decoders import opencv
from pipetune.decoders.contract import Array, Photo, Window
from pipetune.decoders.cv2_pixels import resize_into
from pipetune.decoders.reduced import divisor_for, reduced_size, window_of

_UPRIGHT = 1
_FLAGS = {2: cv2.IMREAD_REDUCED_COLOR_2, 4: cv2.IMREAD_REDUCED_COLOR_4, 8: cv2.IMREAD_REDUCED_COLOR_8}


def load(photo: Photo, window: Window, out: Array) -> None:
    """Decode, reduced where that suffices, crop, resize (bilinear) and flip."""
    crop = window(photo.height, photo.width)
    divisor = divisor_for(crop, len(out))
    if divisor == 1 or not photo.is_jpeg or photo.orientation != _UPRIGHT:
        opencv.load(photo, window, out)
        return
    image = cv2.imdecode(np.frombuffer(photo.read(), np.uint8), _FLAGS[divisor] | opencv.AS_STORED)
    expected = (reduced_size(photo.height, divisor), reduced_size(photo.width, divisor))
    if image is None or image.shape[:2] != expected:  # damaged, or another file by now
        opencv.load(photo, window, out)
        return
    resize_into(window_of(image, crop, divisor), out, flip=crop.flip, bgr=True)
