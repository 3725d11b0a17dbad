"""Loaders that leave stages out do what is left as the whole loader does it."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the loaders make tensors")

import torch

from pipetune.decoders.file_bytes import read_file
from pipetune.loaders import photo_table
from pipetune.loaders.contract import Batch
from pipetune.loaders.open_loader import open_loader
from pipetune.records.explanation import AUGMENT, COLLATE, DECODE, FETCH, HAND_OVER, NORMALISE, STAGES, TRANSFORM
from pipetune.records.sweep import Candidate
from tests.photo_set import PHOTOS, candidate, scan, workload

IMAGES = scan(PHOTOS)
PLAIN = candidate("pillow", 0)
WORKER = candidate("pillow", 1)
RING = replace(WORKER, reuse_buffers=True)
THREADS = replace(candidate("pillow", 1), loader="threads")
EVERY = pytest.mark.parametrize("chosen", [PLAIN, WORKER, RING, THREADS], ids=["inline", "worker", "ring", "threads"])


def batches(chosen: Candidate, stages: tuple[str, ...], count: int = 3, **changes: Any) -> list[Batch]:
    loader = open_loader(chosen, workload(image_size=32, **changes), IMAGES, stages)
    try:
        return [Batch(b.images.clone(), b.labels.clone()) for b in itertools.islice(iter(loader), count)]
    finally:
        loader.close()


@EVERY
@pytest.mark.parametrize("first", [DECODE, TRANSFORM])
def test_batches_are_those_of_the_whole_loader(chosen: Candidate, first: str) -> None:
    whole, part = batches(chosen, ()), batches(chosen, STAGES[STAGES.index(first) :])
    for expected, got in zip(whole, part, strict=True):
        assert torch.equal(expected.images, got.images)
        assert torch.equal(expected.labels, got.labels)


@EVERY
@pytest.mark.parametrize("augment", ["randaugment", "mixup"])
def test_a_loader_that_augments_is_divided_before_it_and_after(chosen: Candidate, augment: str) -> None:
    whole = batches(chosen, (), augment=augment)
    for first in (DECODE, TRANSFORM):
        for expected, got in zip(whole, batches(chosen, STAGES[STAGES.index(first) :], augment=augment), strict=True):
            assert torch.equal(expected.images, got.images)
            assert torch.equal(expected.labels, got.labels)
    plain, later = batches(chosen, ()), (NORMALISE, COLLATE, HAND_OVER)
    augmented = batches(chosen, (AUGMENT, *later), augment=augment)
    normalised = batches(chosen, later, augment=augment)
    for expected, one, other in zip(plain, augmented, normalised, strict=True):
        # Each image comes with one of the crops that are held, and with its own draws.
        assert one.images.shape == other.images.shape == expected.images.shape
        assert torch.equal(other.labels, expected.labels)
        assert one.labels.dtype == (torch.float32 if augment == "mixup" else torch.int64)
        assert not torch.equal(one.images, other.images)
    there = replace(chosen, transforms_on="device")
    for expected, got in zip(plain, batches(there, (), augment=augment), strict=True):
        assert torch.equal(expected.images, got.images)


@pytest.mark.parametrize("chosen", [PLAIN, WORKER], ids=["inline", "worker"])
def test_what_is_collated_are_samples_that_were_decoded(chosen: Candidate) -> None:
    (batch,) = batches(chosen, (COLLATE, HAND_OVER), 1)
    assert batch.images.std() > 0.1


@EVERY
@pytest.mark.parametrize("stages", [(HAND_OVER,), (COLLATE, HAND_OVER)])
def test_batches_that_nobody_fills_have_the_shape_and_the_labels(chosen: Candidate, stages: tuple[str, ...]) -> None:
    for expected, got in zip(batches(chosen, ()), batches(chosen, stages), strict=True):
        assert got.images.shape == expected.images.shape
        assert got.images.dtype == expected.images.dtype
        assert torch.equal(expected.labels, got.labels)


def test_bytes_stay_bytes() -> None:
    chosen = replace(WORKER, transfer="uint8")
    assert batches(chosen, (HAND_OVER,), 1)[0].images.dtype == torch.uint8


def test_held_files_are_read_once_and_never_again(tmp_path: Path) -> None:
    import shutil

    root = tmp_path / "photos"
    shutil.copytree(PHOTOS, root)
    table = photo_table.PhotoTable(scan(root), hold=True)
    expected = [bytes(read_file(image.path)) for image in scan(root).images]
    shutil.rmtree(root)
    assert [bytes(table.photo(position).read()) for position in range(len(table))] == expected


def test_reading_alone_reads_every_file_and_fills_nothing(tmp_path: Path) -> None:
    import shutil

    root = tmp_path / "photos"
    shutil.copytree(PHOTOS, root)
    images = scan(root)
    loader = open_loader(PLAIN, workload(image_size=8, cache="cold"), images, (FETCH,))
    (root / Path(images.images[0].path).relative_to(root)).unlink()
    with pytest.raises(FileNotFoundError):
        list(loader)


def test_a_decoder_that_does_both_at_once_cannot_transform_alone() -> None:
    pytest.importorskip("cv2", reason="the decoder is OpenCV's")
    with pytest.raises(ValueError, match="decodes and transforms in one go"):
        open_loader(candidate("opencv-reduced", 0), workload(), IMAGES, STAGES[2:])
