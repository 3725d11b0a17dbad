"""The geometry of what a device does after decoding, on the CPU: windows, turns, resizing and mirroring as Pillow's."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pipetune.datasets.upright import TURNS
from pipetune.decoders.crop import Crop
from pipetune.decoders.layout import Layout, write_pixels

torch = pytest.importorskip("torch", reason="what is tested handles tensors")
Image = pytest.importorskip("PIL.Image", reason="the reference is Pillow")

from pipetune.decoders.device_pixels import Finisher, find_stored_window, resize_into, turn_upright  # noqa: E402

SIZE = 24
#: Windows of an upright image of 40 x 64 px.
CROPS = (Crop(3, 5, 30, 17, False), Crop(0, 0, 40, 64, True), Crop(39, 63, 1, 1, False), Crop(8, 40, 20, 24, True))


def smooth(height: int, width: int) -> np.ndarray:
    """An image whose every pixel is another, without edges that a filter would smear."""
    y, x = np.mgrid[0:height, 0:width]
    return np.stack((3 * y + x, 2 * x + y, 255 - 2 * y - x), axis=2).clip(0, 255).astype(np.uint8)


def stored(upright: np.ndarray, orientation: int) -> np.ndarray:
    """The image as it would be stored with an orientation: that which turns into ``upright``."""
    back = {6: "ROTATE_90", 8: "ROTATE_270"}.get(orientation, TURNS.get(orientation))
    image = Image.fromarray(upright)
    return np.asarray(image.transpose(Image.Transpose[back]) if back else image)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_turn_is_pillows(orientation: int) -> None:
    upright = smooth(40, 64)
    pixels = torch.from_numpy(stored(upright, orientation).copy()).permute(2, 0, 1)
    assert np.array_equal(turn_upright(pixels, orientation).permute(1, 2, 0).numpy(), upright)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("crop", CROPS)
def test_a_stored_window_is_the_upright_one(orientation: int, crop: Crop) -> None:
    upright = smooth(40, 64)
    image = stored(upright, orientation)
    top, left, height, width = find_stored_window(crop, orientation, 40, 64)
    window = torch.from_numpy(image[top : top + height, left : left + width].copy()).permute(2, 0, 1)
    expected = upright[crop.top : crop.top + crop.height, crop.left : crop.left + crop.width]
    assert np.array_equal(turn_upright(window, orientation).permute(1, 2, 0).numpy(), expected)


def made(layout: Layout, orientation: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """A batch of the crops as a device makes it, and as Pillow does; both ``[4, size, size, 3]``."""
    upright = smooth(40, 64)
    image = torch.from_numpy(stored(upright, orientation).copy()).permute(2, 0, 1)
    finish = Finisher(layout, torch.device("cpu"))
    resized = finish.new_batch(len(CROPS))
    reference = np.empty((len(CROPS), SIZE, SIZE, 3), layout.dtype)
    for place, crop in enumerate(CROPS):
        top, left, height, width = find_stored_window(crop, orientation, 40, 64)
        resize_into(image[:, top : top + height, left : left + width], orientation, resized[place])
        box = (crop.left, crop.top, crop.left + crop.width, crop.top + crop.height)
        theirs = Image.fromarray(upright).crop(box).resize((SIZE, SIZE), Image.Resampling.BILINEAR)
        if crop.flip:
            theirs = theirs.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        write_pixels(np.asarray(theirs), reference[place])
    images = finish(resized, np.array(CROPS, np.int64))
    strides = torch.channels_last if layout.channels_last else torch.contiguous_format
    assert images.is_contiguous(memory_format=strides)
    return images.permute(0, 2, 3, 1).numpy(), reference


@pytest.mark.parametrize("orientation", [1, 3, 6, 7])
def test_bytes_are_pillows_to_one_level(orientation: int) -> None:
    ours, theirs = made(Layout(size=SIZE, uint8=True), orientation)
    assert ours.dtype == np.uint8
    assert np.abs(ours.astype(int) - theirs.astype(int)).max() <= 1


@pytest.mark.parametrize("channels_last", [False, True])
def test_floats_are_the_normalised_bytes(channels_last: bool) -> None:
    layout = Layout(size=SIZE, channels_last=channels_last)
    ours, theirs = made(layout)
    levels, _ = made(replace(layout, uint8=True))
    expected = np.empty_like(ours)
    for place in range(len(levels)):
        write_pixels(levels[place], expected[place])
    assert np.allclose(ours, expected, atol=1e-5)
    assert np.abs(ours - theirs).max() < 0.02  # one level of 255, normalised


def test_interleaved_pixels_are_resized_as_planes_are() -> None:
    pixels = torch.from_numpy(smooth(40, 64))
    planes, rows = torch.empty(2, 3, SIZE, SIZE).unbind()
    resize_into(pixels.permute(2, 0, 1)[:, 3:33, 5:50], 1, rows)
    resize_into(pixels.permute(2, 0, 1).contiguous()[:, 3:33, 5:50], 1, planes)
    assert torch.equal(planes, rows)


#: Floats in the shared memory of a block of torch's kernel, which takes weights for 32 columns, and a row and 32 sums
#: for each tap of a column (``_upsample_bilinear2d_aa`` on CUDA).
SHARED_FLOATS = 48 * 1024 // 4


def shared_floats(edges: tuple[int, int], size: tuple[int, int]) -> int:
    rows, columns = (2 * math.ceil(max(1.0, edge / out)) + 1 for edge, out in zip(edges, size, strict=True))
    return 32 * columns + 33 * rows


@pytest.mark.parametrize(("height", "width"), [(750, 1000), (3001, 4003), (40, 9000), (384, 385)])
def test_an_image_is_reduced_as_far_as_no_kernel_does_at_once(
    height: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it a photograph of 1000 x 750 px fails at 8 x 8 px, as it is tried where images do not decode."""
    needed: list[int] = []
    real = torch._C._nn._upsample_bilinear2d_aa

    def resize(values: Any, size: Any, *rest: Any, **options: Any) -> Any:
        needed.append(shared_floats(values.shape[-2:], size))
        return real(values, size, *rest, **options)

    monkeypatch.setattr(torch._C._nn, "_upsample_bilinear2d_aa", resize)
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
    out = torch.empty(3, 8, 8)
    resize_into(torch.from_numpy(pixels).permute(2, 0, 1), 1, out)
    theirs = np.asarray(Image.fromarray(pixels).resize((8, 8), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
    assert np.abs(out.round().numpy() - theirs).max() <= 1
    assert max(needed) <= SHARED_FLOATS
