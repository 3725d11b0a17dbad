from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from pipetune.answering.shrunken import shrink_all, shrunken, size_of, size_with
from pipetune.datasets.index import ImageSet
from pipetune.errors import PipetuneError
from tests.photo_set import enlarge, scan


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> ImageSet:
    return scan(enlarge(tmp_path_factory.mktemp("photos"), copies=2))


def test_an_image_gets_its_shorter_edge_and_keeps_its_shape(photos: ImageSet) -> None:
    image = max(photos.images, key=lambda one: min(one.width, one.height))
    pixels, size, contents = shrunken(image, 96)
    assert contents is not None
    assert size == len(contents) < image.size_bytes
    with Image.open(io.BytesIO(contents)) as small:
        assert min(small.size) == 96
        assert small.width * small.height == pixels
        assert small.width / small.height == pytest.approx(image.width / image.height, rel=0.03)


def test_a_small_image_stays_as_it_is(photos: ImageSet) -> None:
    image = photos.images[0]
    assert shrunken(image, 10_000) == (image.width * image.height, image.size_bytes, None)


def test_sizes_are_those_of_the_set(photos: ImageSet) -> None:
    now, small, same = size_of(photos), size_with(photos, 96), size_with(photos, 10_000)
    assert same.pixels == pytest.approx(now.pixels)
    assert same.size_bytes == pytest.approx(now.size_bytes)
    assert same.changed_frac == 0
    assert small.pixels < now.pixels
    assert small.size_bytes < now.size_bytes
    assert small.changed_frac > 0.5


def test_a_folder_of_smaller_images_is_a_data_set(photos: ImageSet, tmp_path: Path) -> None:
    made = shrink_all(photos.images, 96, tmp_path)
    for before, after in zip(photos.images, made, strict=True):
        with Image.open(after.path) as found:
            assert found.size == (after.width, after.height)
        assert after.label == before.label
        assert after.size_bytes == Path(after.path).stat().st_size


def test_what_cannot_be_read_is_named(photos: ImageSet, tmp_path: Path) -> None:
    broken = tmp_path / "broken.jpg"
    broken.write_bytes(b"\xff\xd8\xff" + bytes(2000))
    with pytest.raises(PipetuneError, match=r"broken\.jpg"):
        shrunken(replace(photos.images[0], path=str(broken), size_bytes=2003), 8)
    with pytest.raises(PipetuneError, match="gone"):
        shrunken(replace(photos.images[0], path=str(tmp_path / "gone.jpg")), 8)
