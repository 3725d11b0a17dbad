"""MixUp: images and labels are torchvision's, wherever they are mixed."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="what is tested handles tensors")

from pipetune.augmentation.mixing import mix_batch, mix_in_place, mixed_labels  # noqa: E402

LABELS = np.array([2, 0, 1, 1, 2])


def torchvisions(images: torch.Tensor, share: float) -> tuple[torch.Tensor, torch.Tensor]:
    v2 = pytest.importorskip("torchvision.transforms.v2", reason="compared with torchvision")
    theirs = v2.MixUp(alpha=0.2, num_classes=3)
    labels = torch.from_numpy(LABELS)
    params = {"labels": labels, "batch_size": len(labels), "lam": share}
    return theirs.transform(images, params), theirs.transform(labels, params)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.97, 1.0])
def test_floats_are_mixed_as_torchvision_does(share: float) -> None:
    images = torch.randn(5, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    expected, labels = torchvisions(images, share)
    on_device = mix_batch(images, torch.from_numpy(LABELS), share, 3)
    assert torch.allclose(on_device[0], expected, atol=1e-6)
    assert torch.allclose(on_device[1], labels)
    in_place = images.numpy().copy()
    mix_in_place(in_place, share)
    assert np.allclose(in_place, expected.numpy(), atol=1e-6)
    assert np.allclose(mixed_labels(LABELS, share, 3), labels.numpy())


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 1.0])
def test_bytes_are_mixed_and_rounded(share: float) -> None:
    images = np.random.default_rng(0).integers(0, 256, (5, 3, 4, 4), np.uint8)
    exact = share * images.astype(float) + (1 - share) * np.roll(images, 1, axis=0)
    mixed = images.copy()
    mix_in_place(mixed, share)
    assert np.abs(mixed - exact).max() <= 0.5 + 1e-4


def test_an_image_alone_stays_as_it_is() -> None:
    image = np.arange(12, dtype=np.float32).reshape(1, 3, 2, 2)
    mixed = image.copy()
    mix_in_place(mixed, 0.25)
    assert np.allclose(mixed, image)
    mix_in_place(mixed[:0], 0.25)
    assert mixed_labels(np.array([1]), 0.25, 2).tolist() == [[0.0, 1.0]]
