"""Cropping, resizing and mirroring a decoded tensor with torchvision's v2 transforms, into a sample's place."""

from __future__ import annotations

import torch
from PIL import Image
from torchvision.transforms.v2 import functional

from pipetune.decoders import pillow
from pipetune.decoders.contract import Array, Window
from pipetune.decoders.layout import write_pixels


def resize_into(image: torch.Tensor, window: Window, out: Array) -> None:
    """Resize (bilinear, antialiased) the window of an RGB image ``[3, h, w]``, uint8, into ``out``."""
    crop = window(image.shape[1], image.shape[2])
    size = [len(out), len(out)]
    image = functional.resized_crop(image, crop.top, crop.left, crop.height, crop.width, size, antialias=True)
    if crop.flip:
        image = functional.horizontal_flip(image)
    write_pixels(image.permute(1, 2, 0).numpy(), out)


def transform(image: torch.Tensor | Image.Image, window: Window, out: Array) -> None:
    """Crop, resize (bilinear, antialiased), flip and normalise a tensor, or an image that Pillow has decoded."""
    if isinstance(image, torch.Tensor):
        resize_into(image, window, out)
    else:
        pillow.transform(image, window, out)
