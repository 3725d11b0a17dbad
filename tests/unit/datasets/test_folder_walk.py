"""Class folders that lead out of the data set."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pipetune.datasets import folder_walk
from pipetune.datasets.folder import scan_folder
from pipetune.datasets.folder_walk import find_images
from pipetune.datasets.index import ImageSet
from pipetune.errors import UsageError
from tests.unit.datasets.images import encode

JPEG = encode()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A data set of one class."""
    put(tmp_path / "data" / "cat" / "1.jpg")
    return tmp_path / "data"


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Class folders are given up soon."""
    monkeypatch.setattr(folder_walk, "MAX_WITHOUT_IMAGE", 20)


def put(path: Path, data: bytes = JPEG) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def scan(root: Path, *, strict: bool = False) -> ImageSet:
    return scan_folder(str(root), limit_bytes=2**30, seed=0, strict=strict)


def skipped(found: ImageSet) -> dict[str, str]:
    return {os.path.relpath(path, found.root): reason for path, reason in found.skipped}


@pytest.mark.parametrize("place", ["/proc", "/sys"])
@pytest.mark.parametrize("strict", [False, True])
def test_what_the_kernel_makes_is_not_entered(root: Path, place: str, strict: bool) -> None:
    if not os.path.ismount(place):
        pytest.skip(f"{place} is not mounted")
    (root / "cat" / "link").symlink_to(place)
    found = scan(root, strict=strict)
    assert (len(found.images), found.classes) == (1, ("cat",))
    assert skipped(found) == {"cat/link": "is of a file system that the kernel makes, such as /proc"}


def test_who_names_a_folder_there_gets_it() -> None:
    with pytest.raises(UsageError, match=r"no images in '/proc/sys/kernel': [1-9]\d* other files; "):
        scan(Path("/proc/sys/kernel"))


def test_a_class_folder_without_images_is_given_up_and_named(root: Path, few: None) -> None:
    for number in range(30):
        put(root / "dog" / f"{number:02}" / "notes.txt", b"")
    put(root / "dog" / "99" / "1.jpg")
    found = scan(root)
    assert found.classes == ("cat",)
    reason = f"no image among 20 files and directories, up to '{root}/dog': the rest of it was not read"
    assert skipped(found) == {"dog": reason}
    with pytest.raises(UsageError, match=r"dog': no image among 20 files .*; is there a link in it that leads out"):
        scan(root, strict=True)


def test_only_entries_without_an_image_between_them_count(root: Path, few: None) -> None:
    for number in range(5):
        for other in range(10):
            put(root / "dog" / str(number) / f"{other}.txt", b"")
        put(root / "dog" / str(number) / "1.jpg")
    found = scan(root, strict=True)
    assert found.classes == ("cat", "dog")
    assert len(found.images) == 6


def test_class_folders_that_lead_to_one_place_without_images_read_it_once(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "elsewhere" / "below" / "notes.txt", b"")
    for number in range(5):
        (root / f"link{number}").symlink_to(tmp_path / "elsewhere")
    listed: list[str] = []
    scandir = os.scandir

    def noted(path: str) -> object:
        listed.append(os.path.basename(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", noted)
    found = scan(root)
    assert found.classes == ("cat",)
    assert sorted(name for name in listed if name != "data") == ["below", "cat", "link0"]
    assert set(skipped(found).values()) == {"a link to a directory that was already read"}


def test_two_classes_may_share_images(root: Path) -> None:
    (root / "same").symlink_to(root / "cat")
    assert scan(root).classes == ("cat", "same")


def test_progress_is_reported_while_no_image_is_found(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_walk, "_REPORTED_FROM", 3)
    for number in range(3):
        for other in range(3):
            put(root / "dog" / str(number) / f"{other}.txt", b"")
    reports: list[tuple[str, int, int | None]] = []
    find_images(str(root), lambda *report: reports.append(report), strict=False)
    assert reports == [("looking for images", done, None) for done in (3, 6, 9, 12)]
