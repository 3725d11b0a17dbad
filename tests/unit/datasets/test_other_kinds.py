from __future__ import annotations

from pathlib import Path

import pytest

from pipetune.datasets.open_dataset import open_dataset
from pipetune.errors import UsageError
from tests.unit.datasets.test_folder import put


def refused(spec: str) -> tuple[str, str]:
    with pytest.raises(UsageError) as caught:
        open_dataset(spec, seed=0, limit_bytes=1 << 40, workers=1)
    assert "\n" not in str(caught.value)
    return str(caught.value), caught.value.hint or ""


@pytest.mark.parametrize(
    ("name", "what", "hint"),
    [
        ("photos.zip", "is a ZIP file", "unzip "), ("train.parquet", "is a Parquet file", "WebDataset shards"),
        ("train.beton", "is an FFCV data set", "the script that reads it"), ("x.h5", "is an HDF5 file", "sweep -- "),
        ("data.mdb", "is an LMDB database", "sweep -- "), ("labels.csv", "is a table", "name the folder"),
        ("one.jpg", "is one image", "name the folder that holds it: "), ("x.bin", "is a file, not", "name the folder"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_data_set_is_called_what_it_is(name: str, what: str, hint: str, tmp_path: Path) -> None:
    put(tmp_path / "it's" / name, b"data")
    text, advice = refused(str(tmp_path / "it's" / name))
    assert what in text
    assert hint in advice


@pytest.mark.parametrize("name", ["photos.zip", "deep/er/train.parquet", "data.mdb", "x.beton"])
def test_a_folder_without_images_has_a_hint_by_what_it_holds(name: str, tmp_path: Path) -> None:
    put(tmp_path / name, b"data")
    text, advice = refused(str(tmp_path))
    assert "no images in" in text
    assert "1 other file" in text
    assert repr(name) in advice


@pytest.mark.parametrize("spec", ["s3://bucket/train", "gs://x/y", "https://example.org/x.tar", "hf://datasets/x"])
def test_a_url_is_no_path(spec: str) -> None:
    text, advice = refused(spec)
    assert text.startswith(f"{spec!r} is a URL")
    assert "mount it" in advice


def test_a_pattern_is_no_path(tmp_path: Path) -> None:
    for number in range(3):
        put(tmp_path / f"{number}.tar", b"data")
    text, advice = refused(str(tmp_path / "*.tar"))
    assert "is a pattern of 3 files" in text
    assert str(tmp_path) in advice
    assert "is a pattern, and" in refused(str(tmp_path / "shard-{000..010}.tar"))[0]


def test_a_name_with_the_signs_of_a_pattern_is_a_path(tmp_path: Path) -> None:
    put(tmp_path / "a[1]*{x}" / "c" / "1.jpg")
    images = open_dataset(str(tmp_path / "a[1]*{x}"), seed=0, limit_bytes=1 << 40, workers=1)
    assert len(images.images) == 1
