"""torchvision: its own JPEG/PNG/WebP decoders (libjpeg-turbo) and the v2 transforms on uint8 tensors.

What is to be rotated and is no JPEG, Pillow decodes: a WebP would stay as it is.
"""

from __future__ import annotations

import torch
from PIL import Image
from torchvision.io import ImageReadMode, decode_image

from pipetune.decoders import pillow
from pipetune.decoders.contract import Array, Photo, Window
from pipetune.decoders.tensor_pixels import transform

__all__ = ["decode_whole", "load", "transform"]

_UPRIGHT = 1


def load(photo: Photo, window: Window, out: Array) -> None:
    """Decode, crop, resize (bilinear, antialiased) and flip."""
    transform(decode_whole(photo), window, out)


def decode_whole(photo: Photo) -> torch.Tensor | Image.Image:
    """The upright image in RGB: ``[3, height, width]``, uint8 or uint16; as Pillow has it where it is rotated."""
    if photo.orientation != _UPRIGHT and not photo.is_jpeg:
        return pillow.decode_whole(photo)
    encoded = torch.frombuffer(photo.read(), dtype=torch.uint8)
    return decode_image(encoded, mode=ImageReadMode.RGB, apply_exif_orientation=True)
