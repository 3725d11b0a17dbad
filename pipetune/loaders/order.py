"""The order of the samples: one shuffled epoch after the other, without a gap between them.

A sample index is ``epoch * n_images + image``, so it names the image and its random crop.

Why not torch's samplers: processes, threads and DALI must draw the same order from the seed alone.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Protocol

import numpy as np


class Order(Protocol):
    """Yields the sample indices of one batch after the other. As a sampler for torch it has no length."""

    def __iter__(self) -> Iterator[list[int]]: ...


class EndlessOrder:
    """Whole batches without end; a batch may reach into the next epoch.

    Args:
        n_images: number of images in the set (> 0).
        batch_size: samples per batch.
        seed: of the shuffles.
        epochs: number of epochs after which it ends, without a last incomplete batch; ``None``: never.
    """

    def __init__(self, n_images: int, batch_size: int, seed: int, epochs: int | None = None) -> None:
        self.n_images = n_images
        self.batch_size = batch_size
        self.seed = seed
        self.epochs = epochs

    def __iter__(self) -> Iterator[list[int]]:
        batch: list[int] = []
        epoch = 0
        while self.epochs is None or epoch < self.epochs:
            for index in self.epoch(epoch):
                batch.append(index)
                if len(batch) == self.batch_size:
                    yield batch
                    batch = []
            epoch += 1

    def epoch(self, epoch: int) -> list[int]:
        """The sample indices of one epoch, shuffled."""
        return shuffled(self.n_images, self.seed, epoch)


class EpochByEpoch:
    """Whole batches of one epoch each time it is iterated: for loaders whose workers end with the epoch."""

    def __init__(self, n_images: int, batch_size: int, seed: int) -> None:
        self._n_images = n_images
        self._batch_size = batch_size
        self._seed = seed
        self._epoch = 0

    def __iter__(self) -> Iterator[list[int]]:
        # torch asks for two iterators per epoch and uses one: an epoch counts from its first batch on.
        epoch, self._epoch = self._epoch, self._epoch + 1
        indices = shuffled(self._n_images, self._seed, epoch)
        size = self._batch_size
        for start in range(0, len(indices) - size + 1, size):
            yield indices[start : start + size]


class RankOrder:
    """The batches of one rank of a training job, epoch after epoch, from any place on.

    The samples of each rank are those of torch's ``DistributedSampler``: every ``world_size``-th of the epoch's order,
    after it was cut (``drop_last``) or filled up with its own beginning so that all ranks have the same number.

    Args:
        n_images: number of images in the set (> 0).
        batch_size: samples per batch of this rank.
        seed: of the shuffles; ``None``: no shuffle.
        drop_last: leave out what does not fill a batch of every rank.
    """

    def __init__(
        self, n_images: int, batch_size: int, seed: int | None, *, rank: int, world_size: int, drop_last: bool
    ) -> None:
        self._n_images = n_images
        self._batch_size = batch_size
        self._seed = seed
        self._rank = rank
        self._world_size = world_size
        self._drop_last = drop_last
        self._each = n_images // world_size if drop_last else math.ceil(n_images / world_size)
        self._next = (0, 0)
        self._epochs: int | None = None

    @property
    def batches(self) -> int:
        """In an epoch of this rank; the same for every rank."""
        return self._each // self._batch_size if self._drop_last else math.ceil(self._each / self._batch_size)

    def begin_at(self, epoch: int, batch: int, epochs: int | None = None) -> None:
        """Where iterating begins, and after how many epochs it ends (``None``: never)."""
        self._next = (epoch, batch)
        self._epochs = epochs

    def __iter__(self) -> Iterator[list[int]]:
        return self.batches_from(*self._next, self._epochs)

    def batches_from(self, first: int, batch: int, epochs: int | None = None) -> Iterator[list[int]]:
        """The batches from one of an epoch on, whatever else is iterated; ``epochs``: after so many it ends."""
        for epoch in itertools.count(first) if epochs is None else range(first, first + epochs):
            indices = self._epoch(epoch)
            for number in range(batch, self.batches):
                yield indices[number * self._batch_size : (number + 1) * self._batch_size]
            batch = 0

    def _epoch(self, epoch: int) -> list[int]:
        n = self._n_images
        indices = list(range(epoch * n, (epoch + 1) * n)) if self._seed is None else shuffled(n, self._seed, epoch)
        total = self._each * self._world_size
        while len(indices) < total:
            indices += indices[: total - len(indices)]
        return indices[self._rank : total : self._world_size]


def shuffled(n_images: int, seed: int, epoch: int) -> list[int]:
    """The sample indices of one epoch, shuffled."""
    images = np.random.default_rng([seed, epoch]).permutation(n_images)
    return (images + epoch * n_images).tolist()  # type: ignore[no-any-return]
