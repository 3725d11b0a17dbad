"""TorchCodec's image decoders (libjpeg-turbo), which take the place of torchvision's, and the v2 transforms."""

from __future__ import annotations

import torch
from PIL import Image
from torchcodec.decoders import decode_image

from pipetune.decoders import pillow
from pipetune.decoders.contract import Array, Photo, Window
from pipetune.decoders.tensor_pixels import transform

__all__ = ["decode_whole", "load", "transform"]

_UPRIGHT = 1
_ONE_IMAGE = 3


def load(photo: Photo, window: Window, out: Array) -> None:
    """Decode, crop, resize (bilinear, antialiased) and flip. What is to be rotated, Pillow decodes."""
    transform(decode_whole(photo), window, out)


def decode_whole(photo: Photo) -> torch.Tensor | Image.Image:
    """The upright image in RGB: ``[3, height, width]``, uint8 or uint16; as Pillow has it where it is rotated."""
    if photo.orientation != _UPRIGHT:
        return pillow.decode_whole(photo)
    image = decode_image(torch.frombuffer(photo.read(), dtype=torch.uint8), mode="RGB")
    # A format that may hold several images gives as many; the first is the image.
    return image if image.ndim == _ONE_IMAGE else image[0]
