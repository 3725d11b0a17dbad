from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from pathlib import Path

import pytest

from pipetune.datasets.index import ImageFile, ImageSet, read_index, replace_images, write_index
from pipetune.errors import PipetuneError

ODD_NAMES = ("new\nline.jpg", os.fsdecode(b"\xff\xfe.jpg"), " spaces .jpg", "<script>alert(1)</script>.jpg", "ä😀.jpg")


def image(path: str, **changes: object) -> ImageFile:
    values: dict[str, object] = {
        "path": path,
        "label": 0,
        "size_bytes": 1000,
        "width": 40,
        "height": 30,
        "orientation": 1,
        "format": "jpeg",
        "progressive": False,
    }
    return ImageFile(**{**values, **changes})  # type: ignore[arg-type]


def image_set(*images: ImageFile, root: str = "/data") -> ImageSet:
    return ImageSet(
        name="data",
        root=root,
        classes=("a", "b"),
        images=images,
        found_images=len(images),
        skipped=(("/data/x\udcff", "empty file"),),
        skipped_count=7,
    )


def test_a_set_comes_back_as_it_was(tmp_path: Path) -> None:
    images = [image(f"/data/b/{name}", label=1, orientation=6) for name in ODD_NAMES]
    images += [image("/elsewhere/é.png", format="png", progressive=None)]
    before = image_set(*images)
    write_index(str(tmp_path / "index.json"), before)
    assert read_index(str(tmp_path / "index.json")) == before
    assert os.listdir(tmp_path) == ["index.json"]


def test_a_root_of_slash_comes_back(tmp_path: Path) -> None:
    before = image_set(image("/a.jpg"), root="/")
    write_index(str(tmp_path / "index.json"), before)
    assert read_index(str(tmp_path / "index.json")) == before


def test_the_file_is_compact_ascii_with_paths_below_the_root(tmp_path: Path) -> None:
    write_index(str(tmp_path / "index.json"), image_set(*[image(f"/data/a/{n:06}.jpg") for n in range(100)]))
    data = (tmp_path / "index.json").read_bytes()
    assert data.isascii()
    assert json.loads(data)["images"][3] == ["a/000003.jpg", 0, 1000, 40, 30, 1, "jpeg", False]
    assert len(data) < 100 * 60


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = str(tmp_path / "index.json")
    old = image_set(image("/data/a.jpg"))
    write_index(target, old)

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(PipetuneError, match="No space"):
        write_index(target, image_set(image("/data/b.jpg")))
    assert read_index(target) == old
    assert os.listdir(tmp_path) == ["index.json"]


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "null", '{"schema": 999}', '{"schema": 1, "root": 1}', "\xff", '{"schema":1,"root":"/"']
)
def test_what_is_no_index_is_refused_in_one_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "index.json").write_text(text)
    with pytest.raises(PipetuneError, match=r"index\.json' is not an image index") as caught:
        read_index(str(tmp_path / "index.json"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"label": 2}, {"label": -1}, {"orientation": 0}, {"orientation": 9}, {"size_bytes": 0},
        {"width": 0}, {"height": -1}, {"size_bytes": 1.5}, {"label": "0"}, {"orientation": True},
        {"shard": "/data/x.tar"},
    ],
    ids=str,
)  # fmt: skip
def test_an_index_that_compiled_code_could_not_rely_on_is_refused(changes: dict[str, object], tmp_path: Path) -> None:
    """With some images in a shard and others not, an array was read beyond its end in C."""
    crafted = [image("/data/a/1.jpg", **changes), *(image(f"/data/a/{number}.jpg") for number in range(2, 5))]
    write_index(str(tmp_path / "index.json"), image_set(*crafted))
    with pytest.raises(PipetuneError, match="is not an image index"):
        read_index(str(tmp_path / "index.json"))


def test_a_place_before_its_shard_is_refused(tmp_path: Path) -> None:
    write_index(str(tmp_path / "index.json"), image_set(image("/data/x.tar/1.jpg", shard="/data/x.tar", start=-8)))
    with pytest.raises(PipetuneError, match="is not an image index"):
        read_index(str(tmp_path / "index.json"))


def test_a_truncated_index_is_refused(tmp_path: Path) -> None:
    target = tmp_path / "index.json"
    write_index(str(target), image_set(image("/data/a.jpg")))
    target.write_bytes(target.read_bytes()[:-20])
    with pytest.raises(PipetuneError, match="not an image index"):
        read_index(str(target))


def test_a_missing_index_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PipetuneError, match="No such file"):
        read_index(str(tmp_path / "index.json"))


@pytest.mark.parametrize(
    ("orientation", "size"), [(1, (40, 30)), (2, (40, 30)), (4, (40, 30)), (5, (30, 40)), (8, (30, 40))]
)
def test_upright_size(orientation: int, size: tuple[int, int]) -> None:
    assert image("/a", orientation=orientation).upright_size == size


def test_sums() -> None:
    full = image_set(
        image("/data/1", size_bytes=10, width=100, height=10),
        image("/data/2", size_bytes=20, width=10, height=300, orientation=6),
        image("/data/3", size_bytes=60, width=200, height=30),
    )
    assert (full.total_bytes, full.mean_bytes, full.median_size) == (90, 30.0, (200, 10))
    empty = image_set()
    assert (empty.total_bytes, empty.mean_bytes, empty.median_size) == (0, 0.0, (0, 0))


def test_fingerprint_changes_with_names_and_sizes_alone() -> None:
    one, two = image("/data/a/1.jpg"), image("/data/a/2.jpg")
    base = image_set(one, two)
    moved = [dataclasses.replace(x, path=x.path.replace("/data", "/copy")) for x in (one, two)]
    assert base.fingerprint == image_set(two, one).fingerprint == image_set(*moved, root="/copy").fingerprint
    assert len(base.fingerprint) == 16
    others = (
        image_set(one),
        image_set(one, dataclasses.replace(two, size_bytes=1001)),
        image_set(one, dataclasses.replace(two, path="/data/a/3.jpg")),
        image_set(one, dataclasses.replace(two, path="/data/a/\udcff.jpg")),
        image_set(),
    )
    assert len({base.fingerprint, *(other.fingerprint for other in others)}) == 6


def test_fingerprint_is_the_same_in_every_version() -> None:
    expected = hashlib.sha256(b"a/1.jpg\x001000\x00").hexdigest()[:16]
    assert image_set(image("/data/a/1.jpg")).fingerprint == expected


def test_a_bad_image_is_replaced_by_the_next_good_one_and_named() -> None:
    before = image_set(*(image(f"/data/{name}.jpg") for name in "abcd"))
    after = replace_images(before, {1: "broken", 3: "worse"})
    assert [file.path for file in after.images] == ["/data/a.jpg", "/data/c.jpg", "/data/c.jpg", "/data/a.jpg"]
    assert after.skipped == (("/data/b.jpg", "broken"), ("/data/d.jpg", "worse"), *before.skipped)
    assert after.skipped_count == before.skipped_count + 2


def test_without_a_good_image_there_is_nothing_to_replace_with() -> None:
    with pytest.raises(PipetuneError, match="none of the 1 images"):
        replace_images(image_set(image("/data/a.jpg")), {0: "broken"})
