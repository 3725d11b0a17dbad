from __future__ import annotations

from pathlib import Path

import pytest

from pipetune.errors import UsageError
from pipetune.packing.sources import FolderSources


def quiet(stage: str, done: int, total: int | None) -> None:
    """Progress that nobody looks at."""


def folder(root: Path, *names: str) -> FolderSources:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    return FolderSources(str(root), quiet)


def test_images_with_labels_sizes_and_names(tmp_path: Path) -> None:
    found = folder(tmp_path, "b/2.jpg", "a/1.jpg", "a/sub/3.jpg", "b/4.png", "notes.txt")
    assert found.classes == ("a", "b")
    assert [found.name(number) for number in range(len(found))] == ["a/1.jpg", "a/sub/3.jpg", "b/2.jpg", "b/4.png"]
    assert [found.label(number) for number in range(len(found))] == [0, 0, 1, 1]
    place = found.where(1)
    assert place.file == str(tmp_path / "a/sub/3.jpg")
    assert (place.start, place.size) == (0, len("a/sub/3.jpg"))
    assert place.mtime_ns == (tmp_path / "a/sub/3.jpg").stat().st_mtime_ns


def test_keys_have_no_dot_and_no_other_has_them(tmp_path: Path) -> None:
    found = folder(
        tmp_path, "a/x.y.jpg", "a/50%.jpg", "a/__m__.jpg", "a.b/z.jpg", "c/s.jpg", "c/s.png", "c/s-1.jpg",
        "c/s.jpg.png", "c/s.o.jpg", "d/t\n.jpg",
    )  # fmt: skip
    keys = {found.name(number): found.key(number) for number in range(len(found))}
    assert keys == {
        "a/x.y.jpg": "a/x%2Ey", "a/50%.jpg": "a/50%25", "a/__m__.jpg": "a/%5F_m__", "a.b/z.jpg": "a.b/z",
        "c/s.jpg": "c/s%3Ajpg", "c/s.png": "c/s%3Apng", "c/s-1.jpg": "c/s-1", "c/s.jpg.png": "c/s%2Ejpg",
        "c/s.o.jpg": "c/s%2Eo", "d/t\n.jpg": "d/t%0A",
    }  # fmt: skip


def test_files_keep_their_names(tmp_path: Path) -> None:
    found = folder(tmp_path, "a/1.JPEG", "a/2.png", "a/3.png", "a/3.png.jpg")
    assert found.file_name(0, "jpg") == ("a/1", "JPEG")
    assert found.file_name(1, "png") == ("a/2", "png")
    assert found.file_name(1, "jpg") == ("a/2.png", "jpg")
    assert found.file_name(2, "jpg") == ("a/3.png%3A", "jpg"), "the other name is taken"


def test_a_class_without_images_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="no images"):
        folder(tmp_path / "empty")
    (tmp_path / "x" / "none").mkdir(parents=True)
    with pytest.raises(UsageError, match="1 class folder has no images"):
        folder(tmp_path / "x", "a/1.jpg")
