"""Which sample comes when: one shuffled epoch after the other, without end and without a gap between them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np


class EndlessOrder:
    """Batches of tickets. ``ticket = epoch * n_images + image``, so a ticket names the image and its random crop.

    Iterating starts at the first epoch again. As a torch ``batch_sampler`` it has no length, by intention.

    Args:
        n_images: number of images in the set (> 0).
        batch_size: tickets per batch; a batch may reach over the end of an epoch.
        seed: of the shuffles.
        epochs: end after so many epochs, leaving out a last incomplete batch; ``None``: never.
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
            for ticket in self.epoch(epoch):
                batch.append(ticket)
                if len(batch) == self.batch_size:
                    yield batch
                    batch = []
            epoch += 1

    def epoch(self, epoch: int) -> list[int]:
        """The tickets of one epoch, shuffled."""
        shuffled = np.random.default_rng([self.seed, epoch]).permutation(self.n_images)
        return (shuffled + epoch * self.n_images).tolist()  # type: ignore[no-any-return]
