"""The loader of the ceiling's measurement: it needs no time, and yields a few real batches over and over.

They lie on the device already, unless it is the copy that is asked about. A copy to it takes part of every step of a
plain training loop, but how large a part depends on the candidate (bytes take a quarter of what floats do, a decoder on
the GPU nothing): it is a cost of the candidate's and not of the accelerator's.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from pipetune.records.sweep import Candidate, Workload

if TYPE_CHECKING:
    from pipetune.accelerator.contract import Accelerator
    from pipetune.datasets.index import ImageSet
    from pipetune.loaders.contract import Batch


#: Greatest number of batches that are replayed, and the memory that they may take (bytes), which is the device's.
_REPLAY_BATCHES = 4
_REPLAY_BYTES = 2**28
#: So many images are decoded at most; larger batches repeat them.
_MOST_DECODED = 512


class Replay:
    """A loader that yields the same few batches again and again, which takes no time."""

    def __init__(self, batches: list[Batch]) -> None:
        self._batches = batches

    def __iter__(self) -> Iterator[Batch]:
        return itertools.cycle(self._batches)

    @property
    def first(self) -> Batch:
        """One of its batches."""
        return self._batches[0]

    def place(self, accelerator: Accelerator) -> None:
        """Put all batches where a step finds them without a copy."""
        self._batches = [accelerator.place(batch) for batch in self._batches]

    def lock_pages(self) -> None:
        """Put batches that lie in the host's memory into page-locked memory, from where a CUDA device copies them."""
        self._batches = [
            batch if batch.images.is_cuda else batch._replace(images=batch.images.pin_memory())
            for batch in self._batches
        ]

    def close(self) -> None:
        """Drop the batches."""
        self._batches = []


def load_replay(candidate: Candidate, workload: Workload, images: ImageSet) -> Replay:
    """Take a few batches of the candidate's loader: at most 4, and at most 256 MiB of them, but one in any case."""
    from pipetune.loaders.open_loader import open_loader

    # A loader of the user's own has no index of images.
    size = min(candidate.batch_size, _MOST_DECODED, len(images.images) or _MOST_DECODED)
    few = replace(candidate, batch_size=size)
    loader = open_loader(few, workload, images)
    try:
        if few == candidate:
            return Replay(list(_take(loader)))
        return Replay([_repeated(next(iter(loader)), candidate.batch_size)])
    finally:
        loader.close()


def _repeated(batch: Batch, size: int) -> Batch:
    """A batch of so many samples, which repeat: what they show does not matter to the accelerator."""
    times = math.ceil(size / len(batch.labels))
    return batch._replace(images=batch.images.repeat(times, 1, 1, 1)[:size], labels=batch.labels.repeat(times)[:size])


def _take(loader: Iterable[Batch]) -> Iterator[Batch]:
    taken = 0
    for count, batch in enumerate(loader, start=1):
        yield batch
        taken += batch.images.nbytes
        if count == _REPLAY_BATCHES or taken + batch.images.nbytes > _REPLAY_BYTES:
            return
