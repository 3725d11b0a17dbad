"""The images of one of several ranks: those that torch's ``DistributedSampler`` gives it in an epoch."""

from __future__ import annotations

import random
from dataclasses import replace

from pipetune.datasets.index import ImageSet


def slice_of(images: ImageSet, rank: int, ranks: int, seed: int) -> ImageSet:
    """Every ``ranks``-th image of the shuffled set, which is filled up with its own beginning: all have as many.

    A rank is timed for less than an epoch, or reads the same slice again: either way the ranks together read each image
    once before any is read twice, as in a training.
    """
    order = list(images.images)
    random.Random(seed).shuffle(order)
    while order and len(order) % ranks:
        order += order[: ranks - len(order) % ranks]
    return replace(images, images=tuple(order[rank::ranks]))
