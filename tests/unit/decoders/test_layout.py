from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="what is tested handles tensors")

from pipetune.decoders.layout import Layout, write_pixels  # noqa: E402


@pytest.mark.parametrize("channels_last", [False, True])
def test_pixels_are_normalised_as_torchvision_does_to_the_last_bit(channels_last: bool) -> None:
    from torchvision.transforms import functional

    pixels = np.random.default_rng(1).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    layout = Layout(size=16, channels_last=channels_last)
    batch = np.zeros(layout.shape(2), layout.dtype)
    write_pixels(pixels, layout.sample(batch, 1))
    theirs = functional.normalize(functional.to_tensor(pixels), [0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    assert torch.equal(layout.images(torch.from_numpy(batch))[1], theirs)
    assert not batch[0].any()


@pytest.mark.parametrize("channels_last", [False, True])
def test_bytes_stay_bytes(channels_last: bool) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    layout = Layout(size=8, uint8=True, channels_last=channels_last)
    batch = np.zeros(layout.shape(1), layout.dtype)
    write_pixels(pixels, layout.sample(batch, 0))
    images = layout.images(torch.from_numpy(batch))
    assert torch.equal(images[0], torch.from_numpy(pixels).permute(2, 0, 1))
    assert images.nbytes == 192
