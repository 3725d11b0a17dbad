"""TorchCodec's image decoders (libjpeg-turbo), which take the place of torchvision's, and the v2 transforms."""

from __future__ import annotations

import torch
from torchcodec.decoders import decode_image

from pipetune.decoders import pillow
from pipetune.decoders.contract import Array, Photo, Window
from pipetune.decoders.tensor_pixels import resize_into

_UPRIGHT = 1
_ONE_IMAGE = 3


def load(photo: Photo, window: Window, out: Array) -> None:
    """Decode, crop, resize (bilinear, antialiased) and flip. What is to be rotated, Pillow decodes."""
    if photo.orientation != _UPRIGHT:
        pillow.load(photo, window, out)
        return
    image = decode_image(torch.frombuffer(photo.read(), dtype=torch.uint8), mode="RGB")
    # A format that may hold several images gives as many; the first is the image.
    resize_into(image if image.ndim == _ONE_IMAGE else image[0], window, out)
