"""simplejpeg with libjpeg-turbo's shortcuts: reduced decoding, the fast inverse transform, chroma not interpolated.

See :mod:`pipetune.decoders.opencv_reduced` for what reduced decoding can gain. The rest is as ``simplejpeg``.
"""

from __future__ import annotations

import contextlib

import simplejpeg as library

from pipetune.decoders import simplejpeg
from pipetune.decoders.contract import Array, Photo, Window
from pipetune.decoders.cv2_pixels import resize_into
from pipetune.decoders.reduced import divisor_for, reduced_size, window_of

_UPRIGHT = 1


def load(photo: Photo, window: Window, out: Array) -> None:
    """Decode, reduced where that suffices, crop, resize (bilinear) and flip."""
    crop = window(photo.height, photo.width)
    divisor = divisor_for(crop, len(out))
    image = None
    if photo.is_jpeg and photo.orientation == _UPRIGHT:
        image = _decode(photo.read(), photo, divisor)
    if image is None:
        simplejpeg.load(photo, window, out)
        return
    resize_into(window_of(image, crop, divisor), out, flip=crop.flip, bgr=False)


def _decode(data: memoryview, photo: Photo, divisor: int) -> Array | None:
    """The image at ``1 / divisor``; ``None``: it is damaged, or not the image that was indexed."""
    expected = (reduced_size(photo.height, divisor), reduced_size(photo.width, divisor))
    fast: dict[str, int] = {"fastdct": True, "fastupsample": True}
    if divisor > 1:
        # The library takes the smallest of its fractions that is not below this size, which is the same one.
        fast |= {"min_height": expected[0], "min_width": expected[1], "min_factor": divisor}
    with contextlib.suppress(ValueError):
        image: Array = library.decode_jpeg(data, "RGB", buffer=simplejpeg.memory(3 * expected[0] * expected[1]), **fast)
        if image.shape[:2] == expected:
            return image
    return None
