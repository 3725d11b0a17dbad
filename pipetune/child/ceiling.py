"""The loader with which the ceiling (max ingestion rate) is measured: a few real batches, repeated without any work."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pipetune.records.sweep import Candidate, Workload

if TYPE_CHECKING:
    from pipetune.datasets.index import ImageSet
    from pipetune.loaders.contract import Batch


#: Greatest number of batches that are replayed, and the memory that they may take (bytes).
_REPLAY_BATCHES = 8
_REPLAY_BYTES = 2**30


class Replay:
    """A loader that needs no time: it yields the same few batches again and again."""

    def __init__(self, batches: list[Batch]) -> None:
        self._batches = batches

    def __iter__(self) -> Iterator[Batch]:
        return itertools.cycle(self._batches)

    def close(self) -> None:
        """Drop the batches."""
        self._batches = []


def load_replay(candidate: Candidate, workload: Workload, images: ImageSet) -> Replay:
    """Take a few batches of the candidate's loader: at most 8, and at most 1 GiB of them."""
    from pipetune.loaders.open_loader import open_loader

    loader = open_loader(candidate, workload, images)
    try:
        return Replay(list(_take(loader, workload)))
    finally:
        loader.close()


def _take(loader: Iterable[Batch], workload: Workload) -> Iterator[Batch]:
    taken = 0
    for count, batch in enumerate(loader, start=1):
        if workload.accelerator.kind == "cuda" and batch.images.device.type == "cpu":
            batch = batch._replace(images=batch.images.pin_memory(), labels=batch.labels.pin_memory())  # noqa: PLW2901
        yield batch
        taken += batch.images.nbytes
        if count == _REPLAY_BATCHES or taken + batch.images.nbytes > _REPLAY_BYTES:
            return
