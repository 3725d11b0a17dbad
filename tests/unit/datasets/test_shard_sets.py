"""Whole data sets of shards: classes by folders, missing shards, and damaged images beside others of their samples."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.bad_images import jpeg
from tests.unit.datasets.test_shards import open_, write_shard


@pytest.mark.parametrize(
    ("folders", "labels", "source"),
    [
        (("0", "1", "2"), [0, 1, 2], "folders"),
        (("1", "2", "10"), [1, 2, 10], "folder_numbers"),
        (("01", "1"), [0, 1], "folders"),
        (("7",), [7], "folder_numbers"),
    ],
)
def test_folders_called_by_numbers_are_these_classes_unless_two_have_one(
    folders: tuple[str, ...], labels: list[int], source: str, tmp_path: Path
) -> None:
    found = open_(write_shard(tmp_path / "one.tar", {f"{name}/1.jpg": jpeg() for name in folders}))
    assert found.audit is not None
    assert ([image.label for image in found.images], found.audit.label_source) == (labels, source)


def test_shards_that_the_others_names_speak_of_are_missed(tmp_path: Path) -> None:
    for name in ("a-00000-of-00003.tar", "a-00002-of-00003.tar", "b-0-of-1.tar"):
        write_shard(tmp_path / name, {f"{name[0]}.jpg": jpeg(), f"{name[0]}.cls": b"0"})
    found = open_(tmp_path)
    assert found.skipped == (
        (f"{tmp_path}/a-00001-of-00003.tar", "belongs to the data set by the others' names, and is not there"),
    )
    assert found.audit is not None
    assert (found.audit.damaged, found.audit.is_complete) == (1, False)


def test_the_image_of_a_sample_is_not_replaced_by_another_where_it_is_damaged(tmp_path: Path) -> None:
    members = {"1.jpg": b"", "1.png": jpeg(), "1.cls": b"0", "2.jpg": jpeg(), "2.png": jpeg(), "2.cls": b"1"}
    found = open_(write_shard(tmp_path / "one.tar", members))
    assert [os.path.basename(image.path) for image in found.images] == ["2.jpg"]
    assert dict(found.skipped)[f"{tmp_path}/one.tar/1.jpg"] == "is empty"


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_link_to_another_shard_gives_no_samples_twice(link: Callable[[Path, Path], None], tmp_path: Path) -> None:
    write_shard(tmp_path / "set" / "b.tar", {"1.jpg": jpeg(), "1.cls": b"0"})
    write_shard(tmp_path / "elsewhere.tar", {"2.jpg": jpeg(), "2.cls": b"1"})
    link(tmp_path / "set" / "b.tar", tmp_path / "set" / "c.tar")
    link(tmp_path / "elsewhere.tar", tmp_path / "set" / "a.tar")
    found = open_(tmp_path / "set")
    assert [image.path for image in found.images] == [f"{tmp_path}/set/b.tar/1.jpg", f"{tmp_path}/set/a.tar/2.jpg"]
    assert found.skipped == ((f"{tmp_path}/set/c.tar", f"is the same file as '{tmp_path}/set/b.tar'"),)
