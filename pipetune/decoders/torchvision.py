"""torchvision: its own JPEG/PNG/WebP decoders (libjpeg-turbo) and the v2 transforms on uint8 tensors."""

from __future__ import annotations

import torch
from torchvision.io import ImageReadMode, decode_image

from pipetune.decoders.contract import Array, Photo, Window
from pipetune.decoders.tensor_pixels import resize_into


def load(photo: Photo, window: Window, out: Array) -> None:
    """Decode, crop, resize (bilinear, antialiased) and flip."""
    transform(decode_whole(photo), window, out)


def decode_whole(photo: Photo) -> torch.Tensor:
    """The upright image in RGB ``[3, height, width]``, uint8 or uint16."""
    encoded = torch.frombuffer(photo.read(), dtype=torch.uint8)
    return decode_image(encoded, mode=ImageReadMode.RGB, apply_exif_orientation=True)


transform = resize_into
