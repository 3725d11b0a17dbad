"""Normalising uint8 images on the device where they are."""

from __future__ import annotations

import torch

from pipetune.records.imagenet import MEAN, STD


class Normaliser:
    """uint8 images ``[B, 3, S, S]`` -> float32, normalised with ImageNet's means and standard deviations.

    Args:
        device: where the images will be; others are possible, and cost a small copy.
    """

    def __init__(self, device: torch.device | None = None) -> None:
        self._mean, self._std = (
            torch.tensor([255 * value for value in values], device=device).view(1, 3, 1, 1) for values in (MEAN, STD)
        )

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        """The normalised images, on their own device; images of another type as they are."""
        if images.dtype != torch.uint8:
            return images
        if self._mean.device != images.device:
            self._mean, self._std = self._mean.to(images.device), self._std.to(images.device)
        return images.float().sub_(self._mean).div_(self._std)
