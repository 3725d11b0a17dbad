"""Mistakes in what is asked of the loader to train with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="what is tested handles tensors")

import pipetune  # noqa: E402
from pipetune.errors import UsageError  # noqa: E402
from pipetune.records.sweep import Candidate  # noqa: E402
from tests.photo_set import small_photos  # noqa: E402
from tests.unit.training.test_loader import open_  # noqa: E402


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_photos(tmp_path_factory.mktemp("training") / "photos", copies=1)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"batch_size": 0}, "batch_size 0 is out of range"),
        ({"num_workers": -1}, "num_workers -1 is out of range"),
        ({"num_workers": 1.5}, "num_workers 1.5 is not a whole number"),
        ({"seed": -1}, "seed -1 is out of range; use 0 to 4294967295"),
        ({"seed": 2**32}, "seed 4294967296 is out of range"),
        ({"seed": "7"}, "seed '7' is not a whole number"),
        ({"transfer": "float16"}, "unknown transfer 'float16'"),
        ({"loader": "dali"}, "unknown loader 'dali'"),
        ({"rank": 2, "world_size": 2}, "rank 2 of 2 does not exist"),
        ({"rank": 2}, "belong together"),
        ({"device": "cuda:99"}, "no 'cuda:99': torch sees"),
        ({"batch_size": 4000}, "are fewer than a batch of 4000"),
    ],
)
def test_mistakes_are_reported(photos: Path, options: dict[str, Any], expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        open_(photos, **options)


@pytest.mark.parametrize("size", [0, -32])
def test_an_edge_without_pixels_is_refused(photos: Path, size: int) -> None:
    with pytest.raises(UsageError, match=f"image_size {size} is out of range; use at least 1"):
        pipetune.open_loader(Candidate(backend="opencv", num_workers=0, prefetch_depth=0, batch_size=4), photos,
                             image_size=size)  # fmt: skip
