"""torchvision: its own JPEG/PNG/WebP decoders (libjpeg-turbo) and the v2 transforms on uint8 tensors.

The orientation is that of the index: torchvision leaves a turned WebP as it is, and libraries read damaged EXIF
differently. Pillow decodes animated WebPs, which torchvision refuses.
"""

from __future__ import annotations

import torch
from PIL import Image
from torchvision.io import ImageReadMode, decode_image
from torchvision.transforms.v2 import functional

from pipetune.decoders import pillow
from pipetune.decoders.contract import Array, Photo, Window
from pipetune.decoders.device_pixels import turn_upright
from pipetune.decoders.tensor_pixels import transform
from pipetune.decoders.webp_kind import is_animated_webp

__all__ = ["decode_whole", "load", "transform"]


def load(photo: Photo, window: Window, out: Array) -> None:
    """Decode, crop, resize (bilinear, antialiased) and flip."""
    transform(decode_whole(photo), window, out)


def decode_whole(photo: Photo) -> torch.Tensor | Image.Image:
    """The upright image in RGB: ``[3, height, width]``, uint8; as Pillow has it where it is animated."""
    data = photo.read()
    if not photo.is_jpeg and is_animated_webp(data):
        return pillow.decode_whole(photo)
    image = decode_image(torch.frombuffer(data, dtype=torch.uint8), mode=ImageReadMode.RGB)
    if image.dtype == torch.uint16:  # 16-bit PNG
        image = functional.to_dtype(image, torch.uint8, scale=True)
    return turn_upright(image, photo.orientation)
