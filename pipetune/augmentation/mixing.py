"""MixUp: each image of a batch mixed with the one before it, and labels that say so.

As torchvision's ``MixUp`` (Zhang et al., "mixup: Beyond Empirical Risk Minimization", ICLR 2018): all images of a batch
keep the same share of their own. torchvision's reference training mixes where batches are collated, in the worker.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch


def mix_in_place(images: npt.NDArray[Any], share: float) -> None:
    """Mix the images of a batch ``[B, ...]`` where they lie; bytes are rounded.

    Args:
        share: of each image's own; the rest is the image's before it, and the last one's for the first.
    """
    if not len(images):
        return
    last = images[-1].copy()
    own, rest = np.float32(share), np.float32(1.0 - share)
    mixed = np.empty(images.shape[1:], np.float32)
    for place in range(len(images) - 1, -1, -1):
        before = images[place - 1] if place else last
        np.multiply(images[place], own, out=mixed)
        mixed += before * rest
        if images.dtype == np.uint8:
            np.rint(mixed, out=mixed)
        np.copyto(images[place], mixed, casting="unsafe")


def mixed_labels(labels: npt.NDArray[np.int64], share: float, classes: int) -> npt.NDArray[np.float32]:
    """Labels float32 ``[B, classes]`` of mixed images."""
    soft = np.zeros((len(labels), classes), np.float32)
    rows = np.arange(len(labels))
    soft[rows, labels] = share
    soft[rows, np.roll(labels, 1)] += np.float32(1.0 - share)
    return soft


def mix_batch(
    images: torch.Tensor, labels: torch.Tensor, share: float, classes: int
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Images of floats and labels int64 ``[B]`` mixed where they are, in new memory; nothing waits for the device."""
    mixed = images.roll(1, 0).mul_(1.0 - share).add_(images, alpha=share)
    # Not one_hot, which asks the device for the largest label.
    soft = torch.zeros(len(labels), classes, device=labels.device)
    soft.scatter_add_(1, labels.view(-1, 1), torch.full((len(labels), 1), share, device=labels.device))
    soft.scatter_add_(1, labels.roll(1, 0).view(-1, 1), torch.full_like(soft[:, :1], 1.0 - share))
    return mixed, soft
