from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest

from pipetune.datasets.index import ImageFile, ImageSet

table = pytest.importorskip("pipetune.loaders.photo_table", reason="decoders handle tensors")


def image(path: str, label: int = 0, **changes: object) -> ImageFile:
    values = {
        "size_bytes": 10,
        "format": "jpeg",
        "width": 40,
        "height": 30,
        "orientation": 1,
        "progressive": False,
        **changes,
    }
    return ImageFile(path=path, label=label, **values)  # type: ignore[arg-type]


def photos(*images: ImageFile) -> table.PhotoTable:
    return table.PhotoTable(
        ImageSet(name="x", root="/x", classes=("a", "b"), images=images, found_images=len(images))
    )  # fmt: skip


FILES = (image("/x/a.jpg", 1), image("/x/b\udcff c.png", 0, format="png"), image("/x/d.jpg", 1, orientation=6))


def test_photos_are_what_the_index_says() -> None:
    found = photos(*FILES)
    assert len(found) == 3
    assert [found.photo(position).path for position in range(3)] == [one.path for one in FILES]
    assert [found.photo(position).is_jpeg for position in range(3)] == [True, False, True]
    assert [found.photo(position).orientation for position in range(3)] == [1, 1, 6]
    assert (found.photo(0).height, found.photo(0).width) == (30, 40)
    assert (found.photo(2).height, found.photo(2).width) == (40, 30)  # upright
    assert found.photo(0).shard is None


def test_labels() -> None:
    found = photos(*FILES)
    assert [found.label(position) for position in range(3)] == [1, 0, 1]
    assert found.labels(np.array([2, 1])).tolist() == [1, 0]


def test_members_of_shards_have_their_place() -> None:
    members = [image(f"m{n}.jpg", shard=f"/x/{n % 2}.tar", start=512 * n, size_bytes=7 + n) for n in range(3)]
    found = photos(*members)
    photo = found.photo(2)
    assert (photo.path, photo.shard, photo.start, photo.size) == ("m2.jpg", "/x/0.tar", 1024, 9)
    assert found.files.places.tolist() == [[0, 0, 7], [1, 512, 8], [0, 1024, 9]]
    assert bytes(found.files.paths) == b"/x/0.tar\0/x/1.tar\0"


def test_arrays_for_functions_in_c() -> None:
    files = photos(*FILES).files
    ends = files.starts.tolist()
    assert [bytes(files.paths[a:b]) for a, b in itertools.pairwise(ends)] == [
        b"/x/a.jpg\0", b"/x/b\xff c.png\0", b"/x/d.jpg\0",
    ]  # fmt: skip
    assert files.flags.tolist() == [0x81, 0x01, 0x86]
    assert files.places is None


def test_it_can_be_pickled() -> None:
    found = pickle.loads(pickle.dumps(photos(*FILES)))
    assert found.photo(1) == photos(*FILES).photo(1)
