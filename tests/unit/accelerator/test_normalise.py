from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="what is tested handles tensors")

from pipetune.accelerator.normalise import Normaliser  # noqa: E402
from pipetune.records.imagenet import MEAN, STD  # noqa: E402


def test_bytes_become_what_a_model_takes() -> None:
    images = torch.randint(0, 256, (2, 3, 4, 4), dtype=torch.uint8)
    normalised = Normaliser()(images)
    expected = (images / 255 - torch.tensor(MEAN).view(1, 3, 1, 1)) / torch.tensor(STD).view(1, 3, 1, 1)
    assert normalised.dtype == torch.float32
    assert torch.allclose(normalised, expected, atol=1e-5)
    assert images.dtype == torch.uint8


def test_floats_are_left_as_they_are() -> None:
    images = torch.zeros(1, 3, 2, 2)
    assert Normaliser()(images) is images
