"""Training loops for the children of these tests: every kind of loader, opened as a training script opens it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

import pipetune
from pipetune.loaders.contract import Batch
from pipetune.training.loader import TrainingLoader

#: Settings of a candidate.
KINDS: dict[str, dict[str, Any]] = {
    "processes": {"num_workers": 1},
    "ring": {"num_workers": 1, "reuse_buffers": True},
    "threads": {"num_workers": 2, "loader": "threads"},
    "inline": {"num_workers": 0},
    "in place": {"num_workers": 0, "reuse_buffers": True},
}
#: Those that use memory again; in the others torch does.
REUSING = ("ring", "threads", "in place")


def candidate(kind: str, **settings: Any) -> pipetune.Candidate:
    """A candidate with small batches."""
    values = {**KINDS[kind], **settings}
    depth = 2 if values["num_workers"] else 0
    return pipetune.Candidate(backend="opencv", prefetch_depth=depth, batch_size=4, **values)


def opened(photos: str, kind: str, device: str = "cuda", image_size: int = 32, **settings: Any) -> TrainingLoader:
    """A loader of this kind over a folder."""
    return pipetune.open_loader(candidate(kind, **settings), photos, image_size=image_size, device=device)


def batches_of(photos: str, transfer: str = "float32", image_size: int = 32) -> list[Batch]:
    """What every loader shall yield in its first epoch."""
    with opened(photos, "inline", "cpu", image_size, transfer=transfer) as loader:
        return list(loader)


def train(loader: TrainingLoader, device: str = "cuda") -> list[Batch]:
    """The README's loop, with a little work for the device; returns the batches as they lie on it."""
    arrived = []
    for images, labels in loader:
        images = images.to(device, non_blocking=True)  # noqa: PLW2901
        arrived.append(Batch(images, labels.to(device, non_blocking=True)))
        loader.normalise(images).sum()
    return arrived


def prefetch(loader: TrainingLoader, device: str) -> list[Batch]:
    """A loop that copies on a stream of its own, and computes with a batch while the next one is copied."""
    side = torch.cuda.Stream(device)

    def copied(batch: Batch) -> Batch:
        with torch.cuda.stream(side):
            return Batch(*(tensor.to(device, non_blocking=True) for tensor in batch))

    arrived = []
    ahead = None
    for batch in loader:
        arrived += [] if ahead is None else [ahead]
        ahead = copied(batch)
        del batch
        torch.cuda.current_stream(device).wait_stream(side)
    return [*arrived, ahead] if ahead is not None else []


def wrong(arrived: Iterable[Batch], expected: Iterable[Batch]) -> int:
    """Number of batches that differ from what was to be."""
    return sum(
        not (torch.equal(ours.cpu(), images) and torch.equal(theirs.cpu(), labels))
        for (ours, theirs), (images, labels) in zip(arrived, expected, strict=True)
    )
