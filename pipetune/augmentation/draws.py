"""What images draw of a recipe, from seed and sample index alone.

The distributions are those of torchvision's classes with the settings of its reference training
(``references/classification/presets.py`` of pytorch/vision): ``RandAugment(magnitude=9)`` and ``TrivialAugmentWide()``,
both with bilinear interpolation. ColorJitter has timm's default, 0.4 for brightness, contrast and saturation
(``timm/data/transforms_factory.py``), and MixUp ``alpha=0.2`` as torchvision's recipe of 2021.

Why not torch's generator: a process has one, so that what an image draws would depend on the number of workers and on
what was drawn before; threads would take turns in it, and a training that is resumed would draw anew.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pipetune.augmentation.recipes import COLORJITTER, RANDAUGMENT, TRIVIALAUGMENT

Floats = npt.NDArray[np.float64]
Wholes = npt.NDArray[np.int64]

#: Operations in the order of torchvision's ``RandAugment``; a draw names one by its place.
OPERATIONS = (
    "Identity", "ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Brightness", "Color", "Contrast",
    "Sharpness", "Posterize", "Solarize", "AutoContrast", "Equalize",
)  # fmt: skip
#: RandAugment: operations an image, and the magnitude's place among so many.
_OPERATIONS, _MAGNITUDE, _BINS = 2, 9, 31
#: ColorJitter: factors of brightness, contrast and saturation are between 1 - this and 1 + this.
JITTER = 0.4
#: MixUp: both parameters of the beta distribution that the share of an image is drawn from.
MIXUP_ALPHA = 0.2

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
#: Keeps these numbers apart from those of the crops, which have the same seed and index.
_STREAM = np.uint64(0xA0761D6478BD642F)
_JITTERED = tuple(OPERATIONS.index(name) for name in ("Brightness", "Contrast", "Color"))
_ORDERS = np.array(list(itertools.permutations(range(len(_JITTERED)))))


class Draws(NamedTuple):
    """Operations on some images, one after the other."""

    operations: Wholes
    """``[rounds, images]``: places in :data:`OPERATIONS`."""
    values: Floats
    """``[rounds, images]``: an angle (degrees), a shift (px), a shear, bits, a threshold (0..1), or what is added to
    the factor 1 of a blend; 0 where the operation takes none."""


def draw(recipe: str, seed: int, sample_indices: Sequence[int], size: int) -> Draws:
    """What each of some images draws; recipes without operations on single images have no rounds.

    Args:
        recipe: a name in :data:`pipetune.augmentation.recipes.RECIPES`.
        size: edge of the images (px).
    """
    if recipe == RANDAUGMENT:
        numbers = _numbers(seed, sample_indices, 3 * _OPERATIONS)
        rounds = [_drawn(numbers[3 * i : 3 * i + 3], _randaugment(size), _MAGNITUDE) for i in range(_OPERATIONS)]
        return Draws(*map(np.stack, zip(*rounds, strict=True)))
    if recipe == TRIVIALAUGMENT:
        operations, values = _drawn(_numbers(seed, sample_indices, 3), _TRIVIAL, None)
        return Draws(operations[None], values[None])
    if recipe == COLORJITTER:
        return _jitter(_numbers(seed, sample_indices, 1 + len(_JITTERED)))
    return Draws(np.empty((0, len(sample_indices)), np.int64), np.empty((0, len(sample_indices))))


def draw_share(seed: int, first_sample_index: int) -> float:
    """MixUp: the share of each image of a batch that is its own, by the batch's first sample."""
    generator = np.random.default_rng([int(_STREAM), seed, first_sample_index])
    return float(generator.beta(MIXUP_ALPHA, MIXUP_ALPHA))


class _Space(NamedTuple):
    """Magnitudes of all operations."""

    values: Floats
    """``[operations, bins]``, from the weakest to the strongest."""
    signed: npt.NDArray[np.bool_]
    """``[operations]``: the magnitude's sign is drawn, too."""


def _drawn(numbers: Floats, space: _Space, magnitude: int | None) -> tuple[Wholes, Floats]:
    """An operation for each image, and its value.

    Args:
        numbers: ``[3, images]``.
        magnitude: place among the magnitudes; ``None``: any.
    """
    operations = (numbers[0] * len(OPERATIONS)).astype(np.int64)
    places = (numbers[1] * _BINS).astype(np.int64) if magnitude is None else magnitude
    values = space.values[operations, places]
    return operations, np.where(space.signed[operations] & (numbers[2] < 0.5), -values, values)


def _jitter(numbers: Floats) -> Draws:
    """Three operations in random order, as ``ColorJitter`` has them."""
    order = _ORDERS[(numbers[0] * len(_ORDERS)).astype(np.int64)].T
    values = JITTER * (2 * numbers[1:] - 1)
    return Draws(np.array(_JITTERED)[order], np.take_along_axis(values, order, axis=0))


@functools.cache
def _randaugment(size: int) -> _Space:
    """Magnitudes as ``RandAugment`` has them; how far an image is shifted goes with its size."""
    return _space(shear=0.3, shift=150 / 331 * size, rotate=30.0, blend=0.9, bits_lost=4)


def _space(*, shear: float, shift: float, rotate: float, blend: float, bits_lost: int) -> _Space:
    strongest = {
        "ShearX": shear, "ShearY": shear, "TranslateX": shift, "TranslateY": shift, "Rotate": rotate,
        "Brightness": blend, "Color": blend, "Contrast": blend, "Sharpness": blend,
    }  # fmt: skip
    line = np.linspace(0.0, 1.0, _BINS)
    unsigned = {"Posterize": np.round(8 - bits_lost * line), "Solarize": 1 - line}
    values = np.stack([unsigned.get(name, strongest.get(name, 0.0) * line) for name in OPERATIONS])
    return _Space(values, np.array([name in strongest for name in OPERATIONS]))


#: Magnitudes as ``TrivialAugmentWide`` has them.
_TRIVIAL = _space(shear=0.99, shift=32.0, rotate=135.0, blend=0.99, bits_lost=6)


def _numbers(seed: int, sample_indices: Sequence[int], count: int) -> Floats:
    """``[count, images]`` in [0, 1): SplitMix64, as for the crops (:mod:`pipetune.decoders.crop`)."""
    indices = np.array(sample_indices, np.uint64)
    begin = _mix(_mix(np.full_like(indices, seed) * _GOLDEN + indices) ^ _STREAM)
    steps = np.arange(1, count + 1, dtype=np.uint64)[:, None] * _GOLDEN
    return (_mix(begin + steps) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix(z: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
