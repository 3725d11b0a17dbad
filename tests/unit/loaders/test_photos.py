from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="layouts handle tensors")

from pipetune.decoders.contract import BadImage, Files, Photo, Window
from pipetune.decoders.crop import draw_crop
from pipetune.decoders.layout import Layout
from pipetune.loaders.photos import Photos
from tests.photo_set import PHOTOS, scan

LAYOUT = Layout(size=4, uint8=True)
IMAGES = scan(PHOTOS)
COUNT = len(IMAGES.images)


def crops(seen: list[tuple[str, Any]]) -> Any:
    """A decoder that writes nothing and notes its images and crops."""

    def load(photo: Photo, window: Window, out: np.ndarray) -> None:
        seen.append((photo.path, window(photo.height, photo.width)))
        out[...] = len(seen)

    return load


def batch(count: int) -> np.ndarray:
    return np.zeros(LAYOUT.shape(count), LAYOUT.dtype)


def test_a_sample_index_names_an_image_and_its_crop() -> None:
    seen: list[tuple[str, Any]] = []
    photos = Photos(IMAGES, crops(seen), LAYOUT, seed=3)
    photos.fill([1, 1 + COUNT], batch(2))
    one, other = seen
    width, height = IMAGES.images[1].upright_size
    assert one == (IMAGES.images[1].path, draw_crop(3, 1, height, width))
    assert other == (IMAGES.images[1].path, draw_crop(3, 1 + COUNT, height, width))
    assert one[1] != other[1]


def test_samples_are_written_in_their_order_and_labels_follow_them() -> None:
    photos = Photos(IMAGES, crops([]), LAYOUT, seed=0)
    filled = batch(3)
    photos.fill([2, 0, COUNT], filled)
    assert [int(place.max()) for place in filled] == [1, 2, 3]
    expected = [IMAGES.images[position].label for position in (2, 0, 0)]
    assert photos.labels([2, 0, COUNT]).tolist() == expected
    assert [photos.label(index) for index in (2, 0, COUNT)] == expected
    assert len(photos) == COUNT


def test_what_decodes_several_at_once_leaves_the_rest_to_load() -> None:
    asked: list[list[int]] = []

    def fill_some(files: Files, sample_indices: Sequence[int], seed: int, samples: np.ndarray) -> int:
        asked.append(list(sample_indices))
        done = 3 if 3 in sample_indices else len(sample_indices)
        samples[:done] = 100
        return done

    seen: list[tuple[str, Any]] = []
    filled = batch(12)
    Photos(IMAGES, crops(seen), LAYOUT, 0, fill_some).fill(range(12), filled)
    assert asked == [[0, 1, 2, 3, 4, 5, 6, 7], [4, 5, 6, 7, 8, 9, 10, 11]]
    assert [int(place.max()) for place in filled] == [100, 100, 100, 1, *[100] * 8]
    assert [path for path, _ in seen] == [IMAGES.images[3 % COUNT].path]


def test_it_stops_between_samples() -> None:
    seen: list[tuple[str, Any]] = []
    Photos(IMAGES, crops(seen), LAYOUT, 0).fill(range(5), batch(5), stopped=lambda: len(seen) == 2)
    assert len(seen) == 2


@pytest.mark.parametrize(("error", "raised"), [(ValueError("cut off"), BadImage), (MemoryError(), MemoryError)])
def test_a_file_that_does_not_decode_is_named(error: Exception, raised: type[Exception]) -> None:
    def load(photo: Photo, window: Window, out: np.ndarray) -> None:
        raise error

    with pytest.raises(raised) as caught:
        Photos(IMAGES, load, LAYOUT, 0).decode(0, batch(1)[0])
    if raised is BadImage:
        assert Path(IMAGES.images[0].path).name in str(caught.value)
        assert "cut off" in str(caught.value)
