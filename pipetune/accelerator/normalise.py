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
        mean, std = self._on(images.device)
        return images.float().sub_(mean).div_(std)

    def undo(self, images: torch.Tensor) -> torch.Tensor:
        """The bytes that images were normalised from, on their own device; bytes as they are."""
        if images.dtype == torch.uint8:
            return images
        mean, std = self._on(images.device)
        return images.mul(std).add_(mean).round_().clamp_(0, 255).to(torch.uint8)

    def _on(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        if self._mean.device != device:
            self._mean, self._std = self._mean.to(device), self._std.to(device)
        return self._mean, self._std
