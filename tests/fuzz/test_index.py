"""The index of images, on which compiled code relies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pipetune.datasets.index import read_index, write_index
from pipetune.errors import PipetuneError
from tests.fuzz.mutations import changed, damaged, dumped, examples
from tests.unit.datasets.test_index import image, image_set


def _indices(folder: Path) -> list[bytes]:
    """One of files and one of a shard."""
    files = image_set(image("/data/a/1.jpg"), image("/data/b/2.jpg", label=1), image("/elsewhere/3.jpg"))
    shard = image_set(*(image(f"/data/0.tar/{n}.jpg", shard="/data/0.tar", start=512 * n) for n in range(3)))
    for number, one in enumerate((files, shard)):
        write_index(str(folder / str(number)), one)
    return [(folder / str(number)).read_bytes() for number in range(2)]


def _check(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    try:
        found = read_index(str(path))
    except PipetuneError:
        return
    for one in found.images:
        numbers: list[Any] = [one.label, one.size_bytes, one.width, one.height, one.orientation, one.start]
        assert all(type(number) is int for number in numbers)
        assert 0 <= one.label < len(found.classes)
        assert one.size_bytes > 0
        assert one.start >= 0
        assert 1 <= one.orientation <= 8
        assert isinstance(one.path, str)
        assert (one.shard is not None) == found.in_shards
    assert all(isinstance(text, str) for text in (found.name, found.root, *found.classes, *found.files))
    assert found.fingerprint
    assert found.mean_bytes >= 0
    assert len(found.median_size) == 2


@given(data=st.data())
@examples(250)
def test_an_index_with_other_values_is_refused_or_sound(tmp_path: Path, data: st.DataObject) -> None:
    original = data.draw(st.sampled_from(_indices(tmp_path)))
    _check(tmp_path / "index.json", dumped(data.draw(changed(json.loads(original)))))


@given(data=st.data())
@examples(150)
def test_an_index_with_other_bytes_is_refused_or_sound(tmp_path: Path, data: st.DataObject) -> None:
    _check(tmp_path / "index.json", data.draw(damaged(_indices(tmp_path))))
