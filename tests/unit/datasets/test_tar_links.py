"""Links within a tar file, and members with holes."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from pipetune.datasets.shard_members import Found
from pipetune.datasets.tar_links import Extent, stored_extent
from pipetune.datasets.tar_shards import members_of_tar
from tests.bad_images import jpeg
from tests.unit.datasets.test_shards import write_shard


def written(folder: Path, *members: tuple[str, bytes | tuple[bytes, str]]) -> Found:
    """Members with data, and links as (type, target)."""
    path = write_shard(folder / "x.tar", {})
    with tarfile.open(path, "w") as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            if isinstance(content, tuple):
                info.type, info.linkname = content
                tar.addfile(info)
            else:
                source = folder / "data"
                source.write_bytes(content)
                info.size = len(content)
                with source.open("rb") as file:
                    tar.addfile(info, file)
    return members_of_tar(str(path))


HARD, SYMBOLIC = tarfile.LNKTYPE, tarfile.SYMTYPE


@pytest.mark.parametrize(
    ("kind", "target"),
    [(HARD, "a/1.jpg"), (HARD, "./a/1.jpg"), (SYMBOLIC, "1.jpg"), (SYMBOLIC, "../a/./1.jpg")],
)
def test_a_link_has_the_bytes_of_its_target(kind: bytes, target: str, tmp_path: Path) -> None:
    found = written(tmp_path, ("./a/1.jpg", jpeg()), ("./a/2.jpg", (kind, target)))
    first, second = found.members
    assert (first.start, first.size) == (second.start, second.size)
    assert (found.tally.members, found.tally.links, found.tally.rejected) == (2, 1, 0)


def test_links_to_links_and_to_members_with_other_names(tmp_path: Path) -> None:
    found = written(
        tmp_path, ("a/3.jpg", (SYMBOLIC, "../b/2")), ("b/2", (SYMBOLIC, "blob")), ("b/blob", jpeg()),
    )  # fmt: skip
    assert [(member.name, member.size) for member in found.members] == [("a/3.jpg", len(jpeg()))]


@pytest.mark.parametrize(
    ("kind", "target", "reason"),
    [
        (SYMBOLIC, "/data/1.jpg", "a link to '/data/1.jpg', which is no member of the shard"),
        (SYMBOLIC, "../../1.jpg", "which is no member of the shard"),
        (SYMBOLIC, "2.jpg", "a link that leads to more than 40 others"),
        (HARD, "a/9.jpg", "which is no member of the shard"),
    ],
    ids=["outside", "above", "itself", "later"],
)
def test_a_link_that_leads_nowhere_is_named(kind: bytes, target: str, reason: str, tmp_path: Path) -> None:
    found = written(tmp_path, ("a/1.jpg", jpeg()), ("a/2.jpg", (kind, target)), ("a/9.jpg", jpeg()))
    assert len(found.members) == 2
    assert reason in found.tally.kept[0][1]
    assert (found.tally.members, found.tally.rejected) == (3, 1)


def test_a_hard_link_means_the_member_before_it(tmp_path: Path) -> None:
    other = jpeg(quality=50)
    found = written(tmp_path, ("a/1.jpg", jpeg()), ("b/2.jpg", (HARD, "a/1.jpg")), ("c/0.jpg", b""), ("a/1.jpg", other))
    assert next(member.size for member in found.members if member.name == "b/2.jpg") == len(jpeg())


def test_a_label_may_be_a_link(tmp_path: Path) -> None:
    found = written(tmp_path, ("1.jpg", jpeg()), ("1.cls", b"3"), ("2.jpg", jpeg()), ("2.cls", (HARD, "1.cls")))
    assert [member.label for member in found.members] == [3, 3]
    assert (found.tally.labels, found.tally.unmatched) == (2, 0)


@pytest.mark.parametrize(
    ("pieces", "extent"),
    [
        ([(0, 100), (4096, 0)], Extent(512, 100)),
        ([(0, 100), (100, 28)], Extent(512, 128)),
        ([(0, 100), (4096, 100)], None),
        ([(4096, 100)], None),
        ([], Extent(512, 0)),
    ],
)
def test_holes_behind_the_data_only_are_left_away(pieces: list[tuple[int, int]], extent: Extent | None) -> None:
    info = tarfile.TarInfo("a.jpg")
    info.offset_data, info.size = 512, 8192
    info.sparse = pieces  # type: ignore[attr-defined]
    assert stored_extent(info) == extent
