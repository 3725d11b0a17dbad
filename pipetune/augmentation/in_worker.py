"""Augmenting one image after the other, as the worker of a training script does, with torchvision's functions."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as F

from pipetune.augmentation.draws import OPERATIONS, draw

Operation = Callable[[torch.Tensor, float], torch.Tensor]

_BILINEAR = InterpolationMode.BILINEAR


class WorkerAugmenter:
    """Augments single images. Can be pickled, and used by several threads.

    Args:
        recipe: a name in :data:`pipetune.augmentation.recipes.RECIPES`.
        seed: with the sample's index it decides what an image draws.
    """

    def __init__(self, recipe: str, seed: int) -> None:
        self._recipe = recipe
        self._seed = seed

    def __call__(self, sample_index: int, pixels: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        """One image augmented: uint8 ``[3, size, size]``, as it was given or in new memory."""
        use_one_thread()
        draws = draw(self._recipe, self._seed, [sample_index], pixels.shape[-1])
        image = torch.from_numpy(pixels)
        for operation, value in zip(draws.operations[:, 0], draws.values[:, 0], strict=True):
            image = OPERATE[OPERATIONS[operation]](image, float(value))
        augmented: npt.NDArray[np.uint8] = image.numpy()
        return augmented


def _sheared(image: torch.Tensor, shear: list[float]) -> torch.Tensor:
    degrees = [math.degrees(math.atan(value)) for value in shear]
    return F.affine(
        image, angle=0.0, translate=[0, 0], scale=1.0, shear=degrees, interpolation=_BILINEAR, center=[0, 0]
    )


def _shifted(image: torch.Tensor, by: list[int]) -> torch.Tensor:
    return F.affine(image, angle=0.0, translate=by, scale=1.0, shear=[0.0, 0.0], interpolation=_BILINEAR)


#: What each operation does, as torchvision's ``RandAugment`` has it.
OPERATE: dict[str, Operation] = {
    "Identity": lambda image, _: image,
    "ShearX": lambda image, value: _sheared(image, [value, 0.0]),
    "ShearY": lambda image, value: _sheared(image, [0.0, value]),
    "TranslateX": lambda image, value: _shifted(image, [int(value), 0]),
    "TranslateY": lambda image, value: _shifted(image, [0, int(value)]),
    "Rotate": lambda image, value: F.rotate(image, angle=value, interpolation=_BILINEAR),
    "Brightness": lambda image, value: F.adjust_brightness(image, 1.0 + value),
    "Color": lambda image, value: F.adjust_saturation(image, 1.0 + value),
    "Contrast": lambda image, value: F.adjust_contrast(image, 1.0 + value),
    "Sharpness": lambda image, value: F.adjust_sharpness(image, 1.0 + value),
    "Posterize": lambda image, value: F.posterize(image, int(value)),
    "Solarize": lambda image, value: F.solarize(image, 255.0 * value),
    "AutoContrast": lambda image, _: F.autocontrast(image),
    "Equalize": lambda image, _: F.equalize(image),
}

_of_thread = threading.local()


def use_one_thread() -> None:
    """Let a loader's thread compute by itself; a process that loads for itself keeps the threads that it has.

    Why: torch would give each loader thread as many helpers as there are cores. ``torch.set_num_threads`` holds for the
    thread that calls it, and for those that compute for the first time later. So another thread sets it back for these.
    """
    if getattr(_of_thread, "ready", False):
        return
    _of_thread.ready = True
    if threading.current_thread() is threading.main_thread():
        return
    with _setting:
        count = torch.get_num_threads()
        torch.set_num_threads(1)
        helper = threading.Thread(target=torch.set_num_threads, args=(count,))
        helper.start()
        helper.join()


#: Only one thread at a time changes what new threads get.
_setting = threading.Lock()
