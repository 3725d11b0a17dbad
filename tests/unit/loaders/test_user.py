from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pipetune.datasets.index import ImageSet
from pipetune.loaders.user import batch_of, open_loader, open_trial, trainable
from pipetune.records.sweep import Candidate, Workload
from pipetune.usercode.make_loader import pack
from tests.unit.samples import sample

IMAGES = torch.zeros(4, 3, 8, 8)
LABELS = torch.arange(4)
NONE = ImageSet(name="own:x", root="x", classes=(), images=(), found_images=0)


def opened(tmp_path: Path, make_loader: Any) -> Any:
    path = tmp_path / "loader.pkl"
    path.write_bytes(pack(make_loader))
    candidate = Candidate(backend="own", num_workers=2, prefetch_depth=4, batch_size=8)
    return open_loader(candidate, replace(sample(Workload), loader_path=str(path)), NONE)


def test_epochs_follow_each_other_without_end(tmp_path: Path) -> None:
    loader = opened(tmp_path, lambda num_workers, prefetch_factor: [np.full((2, 3), e) for e in (num_workers, 9)])

    seen = [int(batch.images[0, 0]) for batch in itertools.islice(loader, 5)]

    assert seen == [2, 9, 2, 9, 2]
    loader.close()
    loader.close()


def test_it_is_asked_for_what_it_takes(tmp_path: Path) -> None:
    loader = opened(tmp_path, lambda **settings: [np.array([settings["prefetch_factor"], settings["batch_size"]])])

    assert next(iter(loader)).images.tolist() == [4, 8]


def test_a_loader_without_a_batch_is_an_error_and_no_endless_loop(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="without a single batch"):
        next(iter(opened(tmp_path, lambda num_workers: [])))


def test_its_own_end_is_called(tmp_path: Path) -> None:
    class Loader:
        def __init__(self, mark: Path) -> None:
            self.mark = mark

        def __iter__(self) -> Iterator[torch.Tensor]:
            yield torch.zeros(1)

        def shutdown(self) -> None:
            self.mark.write_text("ended")

    loader = opened(tmp_path, lambda num_workers, mark=tmp_path / "mark": Loader(mark))
    next(iter(loader))
    loader.close()

    assert (tmp_path / "mark").read_text() == "ended"


@pytest.mark.parametrize(
    ("batch", "labels"),
    [
        (IMAGES, [0] * 4),
        ((IMAGES, LABELS), [0, 1, 2, 3]),
        ([IMAGES, LABELS, ["paths"]], [0, 1, 2, 3]),
        ({"image": IMAGES, "label": LABELS, "path": "x"}, [0, 1, 2, 3]),
        ({"label": LABELS, "pixel_values": IMAGES}, [0, 1, 2, 3]),
        ([{"images": IMAGES, "labels": LABELS}], [0, 1, 2, 3]),
        (({"anything": IMAGES},), [0] * 4),
        ({"label": LABELS, "anything": IMAGES}, [0, 1, 2, 3]),
        ({"img": IMAGES, "label": ["a", "b", "c", "d"]}, [0] * 4),
        ((IMAGES, LABELS.float()), [0] * 4),
        ((IMAGES, {"boxes": 1}), [0] * 4),
        ((list(IMAGES), LABELS), [0, 1, 2, 3]),
        ((IMAGES.numpy(), LABELS.numpy()), [0, 1, 2, 3]),
    ],
)
def test_a_batch_of_any_form(batch: object, labels: list[int]) -> None:
    found = batch_of(batch)

    assert found.images.shape == IMAGES.shape
    assert found.labels.tolist() == labels


@pytest.mark.parametrize("batch", ["text", 3, [], {}, ["a", "b"], {"path": "x"}])
def test_a_batch_without_an_array_is_an_error(batch: object) -> None:
    with pytest.raises(TypeError, match="without a tensor or an array"):
        batch_of(batch)


def test_images_of_different_sizes_are_counted() -> None:
    assert len(batch_of(((torch.zeros(3, 5, 6), torch.zeros(3, 7, 8)), ({}, {}))).images) == 2


def test_bytes_become_what_a_model_takes() -> None:
    batch = batch_of((IMAGES.byte(), LABELS.int()))

    assert batch.labels.dtype == torch.int64
    assert trainable(batch).images.dtype == torch.float32
    assert batch.images.dtype == torch.uint8


def test_there_is_nothing_to_try() -> None:
    assert open_trial(sample(Candidate), sample(Workload))("any") is None
