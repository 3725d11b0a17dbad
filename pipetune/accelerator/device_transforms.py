"""Whatever is done to a batch on the device before a model sees it: augmenting, normalising, mixing."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from pipetune.accelerator.normalise import Normaliser
from pipetune.augmentation.draws import draw_share
from pipetune.augmentation.mixing import mix_batch
from pipetune.augmentation.on_device import augment_batch
from pipetune.augmentation.recipes import BASIC, MIXUP


class DeviceTransforms:
    """Batches as a loader has made them -> batches as a model takes them, on their own device.

    The loader has cropped and flipped the images. Images and draws are those of a loader that augments: bytes are
    augmented, and normalised after that; images that come normalised are made bytes again first, which is exact.

    Args:
        recipe: what is done here, a name in :data:`pipetune.augmentation.recipes.RECIPES`; ``basic``: images are
            normalised.
        seed: with the samples' indices it decides what images draw.
        classes: number of classes, of which mixed labels are made.
        device: where the batches will be; others are possible, and cost a small copy.
    """

    def __init__(self, recipe: str, seed: int, classes: int, device: torch.device | None = None) -> None:
        self.recipe = recipe
        self._seed = seed
        self._classes = max(1, classes)
        self.normalise = Normaliser(device)

    def __call__(
        self, images: torch.Tensor, labels: torch.Tensor, sample_indices: Sequence[int]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Images float32 ``[B, 3, S, S]`` and labels int64 ``[B]``, or float32 ``[B, classes]`` of mixed images."""
        if self.recipe not in (BASIC, MIXUP):
            images = augment_batch(self.normalise.undo(images), self.recipe, self._seed, sample_indices)
        images = self.normalise(images)
        if self.recipe != MIXUP:
            return images, labels
        return mix_batch(images, labels, draw_share(self._seed, sample_indices[0]), self._classes)
