"""The samples of each batch with their crop windows, which are drawn for many batches in one go.

Why: a loader that crops outside of its decoder needs a batch's windows at once, and in Python. One call for a thousand
samples takes a tenth of the time of a call for each (:func:`pipetune.decoders.crop.draw_crops`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pipetune.decoders.crop import Crops, draw_crops

#: Number of samples whose windows are drawn in one go, or as many as a batch has.
MIN_SAMPLES = 1024

#: The samples of a batch, and their windows.
Task = tuple[Sequence[int], Crops]


class WindowedOrder:
    """An order of batches whose samples come with their windows. Can be iterated again where the order can.

    Args:
        order: the samples of each batch.
        sizes: ``[images, 2]``: width and height of each upright image (px).
        seed: of the random crops.
    """

    def __init__(self, order: Iterable[Sequence[int]], sizes: npt.NDArray[Any], seed: int) -> None:
        self._order = order
        self._sizes = sizes
        self._seed = seed

    def __iter__(self) -> Iterator[Task]:
        for batches in _groups(iter(self._order)):
            indices = np.concatenate([np.asarray(batch, np.int64) for batch in batches])
            crops = draw_crops(self._seed, indices, self._sizes[indices % len(self._sizes)])
            start = 0
            for batch in batches:
                yield batch, crops[start : start + len(batch)]
                start += len(batch)


def _groups(batches: Iterator[Sequence[int]]) -> Iterator[list[Sequence[int]]]:
    group: list[Sequence[int]] = []
    samples = 0
    for batch in batches:
        group.append(batch)
        samples += len(batch)
        if samples >= MIN_SAMPLES:
            yield group
            group, samples = [], 0
    if group:
        yield group
