"""The random resized crop and flip of one sample, drawn from seed and sample index alone.

Why our own generator: every backend, worker process and thread must draw the same window for the same sample, without
state to carry and for next to nothing. SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
generators", OOPSLA 2014) is a few integer operations; seeding a Mersenne Twister per sample costs more than the crop.
"""

from __future__ import annotations

import math
from typing import NamedTuple

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15

#: Area and aspect ratio of the window, as torchvision's RandomResizedCrop defaults.
SCALE = (0.08, 1.0)
LOG_RATIO = (math.log(3 / 4), math.log(4 / 3))
_ATTEMPTS = 10


class Crop(NamedTuple):
    """A window of the upright image (px) and whether it is mirrored left to right."""

    top: int
    left: int
    height: int
    width: int
    flip: bool


def draw_crop(seed: int, sample_index: int, height: int, width: int) -> Crop:
    """The window of one sample in an upright image of ``height`` x ``width`` px.

    The distribution is torchvision's ``RandomResizedCrop`` (ten attempts, then the central window whose aspect ratio is
    clamped) followed by a flip with probability 1/2.
    """
    state = _mix(seed * _GOLDEN + sample_index)
    for _ in range(_ATTEMPTS):
        area, state = _uniform(state)
        ratio, state = _uniform(state)
        target = height * width * (SCALE[0] + (SCALE[1] - SCALE[0]) * area)
        aspect = math.exp(LOG_RATIO[0] + (LOG_RATIO[1] - LOG_RATIO[0]) * ratio)
        w = round(math.sqrt(target * aspect))
        h = round(math.sqrt(target / aspect))
        if 0 < w <= width and 0 < h <= height:
            y, state = _uniform(state)
            x, state = _uniform(state)
            flip, state = _uniform(state)
            return Crop(int(y * (height - h + 1)), int(x * (width - w + 1)), h, w, flip < 0.5)
    flip, state = _uniform(state)
    return _central(height, width, flip < 0.5)


def _central(height: int, width: int, flip: bool) -> Crop:
    low, high = math.exp(LOG_RATIO[0]), math.exp(LOG_RATIO[1])
    if width / height < low:
        w, h = width, min(height, max(1, round(width / low)))
    elif width / height > high:
        w, h = min(width, max(1, round(height * high))), height
    else:
        w, h = width, height
    return Crop((height - h) // 2, (width - w) // 2, h, w, flip)


def _mix(z: int) -> int:
    z &= _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def _uniform(state: int) -> tuple[float, int]:
    state = (state + _GOLDEN) & _MASK
    return (_mix(state) >> 11) * 2.0**-53, state
