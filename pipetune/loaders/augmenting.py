"""What a loader does to its images besides decoding and cropping them, where it is the one who augments them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from pipetune.augmentation.draws import draw_share
from pipetune.augmentation.recipes import BASIC, MIXUP
from pipetune.decoders.contract import Array
from pipetune.errors import MissingPackageError

#: ``augment(sample_index, pixels)``: uint8 ``[3, size, size]`` -> the same augmented.
Augment = Callable[[int, npt.NDArray[np.uint8]], npt.NDArray[np.uint8]]


def build_augmenter(recipe: str, seed: int) -> Augment | None:
    """What augments single images; ``None``: nothing does.

    Raises:
        MissingPackageError: torchvision is not installed.
    """
    if recipe in (BASIC, MIXUP):
        return None
    try:
        from pipetune.augmentation.in_worker import WorkerAugmenter
    except ImportError as error:
        raise MissingPackageError(
            f"augment={recipe} needs torchvision ({error})", hint="run: pip install 'pipetune[torch]'"
        ) from None
    return WorkerAugmenter(recipe, seed)


class Mixing:
    """MixUp of whole batches. What a batch draws is decided by the seed and its first sample. Can be pickled.

    Args:
        classes: number of classes of the data set.
    """

    def __init__(self, seed: int, classes: int) -> None:
        self._seed = seed
        self._classes = max(1, classes)

    def mix(self, images: Array, first_sample_index: int) -> None:
        """Mix the images of a batch where they lie."""
        from pipetune.augmentation.mixing import mix_in_place

        mix_in_place(images, draw_share(self._seed, first_sample_index))

    def labels(self, labels: npt.NDArray[np.int64], first_sample_index: int) -> Any:
        """The labels float32 ``[B, classes]`` of the mixed images."""
        from pipetune.augmentation.mixing import mixed_labels

        return mixed_labels(labels, draw_share(self._seed, first_sample_index), self._classes)
