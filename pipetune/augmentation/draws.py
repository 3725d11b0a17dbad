"""What one image draws of a recipe, from seed and sample index alone. Standard library only.

The distributions are those of torchvision's classes with the settings of its reference training
(``references/classification/presets.py`` of pytorch/vision): ``RandAugment(magnitude=9)`` and ``TrivialAugmentWide()``,
both with bilinear interpolation. ColorJitter has timm's default, 0.4 for brightness, contrast and saturation
(``timm/data/transforms_factory.py``), and MixUp ``alpha=0.2`` as torchvision's recipe of 2021.

Why not torch's generator: it is one for a whole process, so that what an image draws would depend on the number of
workers and on what was drawn before; threads would take turns in it.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

from pipetune.augmentation.recipes import COLORJITTER, RANDAUGMENT, TRIVIALAUGMENT

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
#: Keeps these numbers apart from those of the crops, which have the same seed and index.
_STREAM = 0xA0761D6478BD642F

#: RandAugment: operations an image, and the magnitude's place among so many.
_OPERATIONS, _MAGNITUDE, _BINS = 2, 9, 31
#: ColorJitter: factors of brightness, contrast and saturation are between 1 - this and 1 + this.
JITTER = 0.4
#: MixUp: both parameters of the beta distribution that an image's share is drawn from.
MIXUP_ALPHA = 0.2


class Draw(NamedTuple):
    """One operation on one image."""

    operation: str
    """A name of torchvision's ``RandAugment``."""
    value: float
    """Its magnitude: an angle (degrees), a shift (px), a shear, bits, a threshold (0..1), or what is added to the
    factor 1 of a blend; 0 where it has none."""


class _Space(NamedTuple):
    """Magnitudes of one operation."""

    name: str
    values: tuple[float, ...]
    """From the weakest to the strongest; ``()``: it has none."""
    signed: bool


def draws_of(recipe: str, seed: int, sample_index: int, size: int) -> tuple[Draw, ...]:
    """The operations on one image, in order; ``()`` for recipes that have none.

    Args:
        recipe: a name in :data:`pipetune.augmentation.recipes.RECIPES`.
        size: edge of the image (px).
    """
    numbers = _Numbers(seed, sample_index)
    if recipe == RANDAUGMENT:
        return tuple(_drawn(numbers, _randaugment(size), _MAGNITUDE) for _ in range(_OPERATIONS))
    if recipe == TRIVIALAUGMENT:
        return (_drawn(numbers, _TRIVIAL, None),)
    if recipe == COLORJITTER:
        return _jitter(numbers)
    return ()


def _drawn(numbers: _Numbers, spaces: Sequence[_Space], magnitude: int | None) -> Draw:
    """One of the operations.

    Args:
        magnitude: place among the magnitudes; ``None``: any.
    """
    space = spaces[numbers.below(len(spaces))]
    if not space.values:
        return Draw(space.name, 0.0)
    value = space.values[numbers.below(len(space.values)) if magnitude is None else magnitude]
    return Draw(space.name, -value if space.signed and numbers.uniform() < 0.5 else value)


def _jitter(numbers: _Numbers) -> tuple[Draw, ...]:
    """The three operations in random order, as ``ColorJitter`` has them."""
    left = ["Brightness", "Contrast", "Color"]
    found = []
    while left:
        name = left.pop(numbers.below(len(left)))
        found.append(Draw(name, JITTER * (2 * numbers.uniform() - 1)))
    return tuple(found)


def _line(end: float, *, start: float = 0.0) -> tuple[float, ...]:
    return tuple(start + (end - start) * place / (_BINS - 1) for place in range(_BINS))


@functools.cache
def _randaugment(size: int) -> tuple[_Space, ...]:
    """Magnitudes as ``RandAugment`` has them; how far an image is shifted goes with its size."""
    return _spaces(
        shear=0.3, shift=150 / 331 * size, rotate=30.0, blend=0.9, bits=[8 - 4 * place / 30 for place in range(_BINS)]
    )


def _spaces(*, shear: float, shift: float, rotate: float, blend: float, bits: Sequence[float]) -> tuple[_Space, ...]:
    signed = {
        "ShearX": shear, "ShearY": shear, "TranslateX": shift, "TranslateY": shift, "Rotate": rotate,
        "Brightness": blend, "Color": blend, "Contrast": blend, "Sharpness": blend,
    }  # fmt: skip
    return (
        _Space("Identity", (), False),
        *(_Space(name, _line(end), True) for name, end in signed.items()),
        _Space("Posterize", tuple(float(round(value)) for value in bits), False),
        _Space("Solarize", _line(0.0, start=1.0), False),
        _Space("AutoContrast", (), False),
        _Space("Equalize", (), False),
    )


#: Magnitudes as ``TrivialAugmentWide`` has them.
_TRIVIAL = _spaces(
    shear=0.99, shift=32.0, rotate=135.0, blend=0.99, bits=[8 - 6 * place / 30 for place in range(_BINS)]
)


class _Numbers:
    """SplitMix64, as for the crops (:mod:`pipetune.decoders.crop`), on a stream of its own."""

    def __init__(self, seed: int, sample_index: int) -> None:
        self._state = _mix(_mix(seed * _GOLDEN + sample_index) ^ _STREAM)

    def uniform(self) -> float:
        """A number in [0, 1)."""
        self._state = (self._state + _GOLDEN) & _MASK
        return (_mix(self._state) >> 11) * 2.0**-53

    def below(self, count: int) -> int:
        """A whole number in [0, count)."""
        return int(self.uniform() * count)


def _mix(z: int) -> int:
    z &= _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)
