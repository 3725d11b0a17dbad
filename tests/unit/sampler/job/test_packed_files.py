from __future__ import annotations

import os
from pathlib import Path

import pytest

from pipetune.sampler.job.packed_files import kind_of, packed_files


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/d/train-000001.tar", "WebDataset shards"), ("/d/a.tar.gz", "WebDataset shards"),
        ("/d/A.TAR", "WebDataset shards"),
        ("/d/train.rec", "RecordIO files"), ("/d/x.tfrecord", "TFRecord files"),
        ("/d/train-00001-of-01024", "TFRecord files"), ("/d/shard.00000.mds", "MDS shards"), ("/d/i.h5", "HDF5 files"),
        ("/d/lmdb/data.mdb", "an LMDB"), ("/d/x.parquet", "Parquet files"), ("/d/x.rec (deleted)", "RecordIO files"),
        ("/d/x.jpg", None), ("socket:[12]", None), ("/d/tar", None), ("/d/target", None),
        ("pipe:[7]", None), ("", None),
        ("anon_inode:[eventpoll]", None), ("/d/train.record", None),
    ],
)  # fmt: skip
def test_what_files_are_called(path: str, kind: str | None) -> None:
    assert kind_of(path) == kind


def test_the_kind_of_which_a_process_has_the_most(tmp_path: Path) -> None:
    folder = tmp_path / "7/fd"
    folder.mkdir(parents=True)
    for number, target in enumerate(["/d/0.tar", "/d/1.rec", "/d/2.rec", "socket:[1]", "/d/x.jpg"]):
        (folder / str(number)).symlink_to(target)
    assert packed_files(7, str(tmp_path)) == "RecordIO files"


def test_a_process_without_such_files_and_one_that_has_gone(tmp_path: Path) -> None:
    (tmp_path / "7/fd").mkdir(parents=True)
    assert packed_files(7, str(tmp_path)) is None
    assert packed_files(8, str(tmp_path)) is None


def test_a_file_of_this_process(tmp_path: Path) -> None:
    with (tmp_path / "photos.tar").open("wb"):
        assert packed_files(os.getpid()) == "WebDataset shards"
