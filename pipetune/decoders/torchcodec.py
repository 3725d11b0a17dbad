"""TorchCodec's image decoders (libjpeg-turbo), which take the place of torchvision's, and the v2 transforms.

Pillow decodes what is to be turned, because TorchCodec reads EXIF itself and cannot be told the orientation of the
index, and animated WebPs, of which TorchCodec would decode every frame.
"""

from __future__ import annotations

import torch
from PIL import Image
from torchcodec.decoders import decode_image

from pipetune.decoders import pillow
from pipetune.decoders.contract import Array, Photo, Window
from pipetune.decoders.tensor_pixels import transform
from pipetune.decoders.webp_kind import is_animated_webp

__all__ = ["decode_whole", "load", "transform"]

_UPRIGHT = 1
_ONE_IMAGE = 3


def load(photo: Photo, window: Window, out: Array) -> None:
    """Decode, crop, resize (bilinear, antialiased) and flip."""
    transform(decode_whole(photo), window, out)


def decode_whole(photo: Photo) -> torch.Tensor | Image.Image:
    """The upright image in RGB: ``[3, height, width]``, uint8; as Pillow has it where Pillow decodes."""
    data = photo.read()
    if photo.orientation != _UPRIGHT or photo.exif_disputed or (not photo.is_jpeg and is_animated_webp(data)):
        return pillow.decode_whole(photo)
    image = decode_image(torch.frombuffer(data, dtype=torch.uint8), mode="RGB")
    # A format that may hold several images gives as many; the first is the image.
    return image if image.ndim == _ONE_IMAGE else image[0]
