"""Folders in which images are missing, or too large."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pipetune.datasets.folder import scan_folder
from pipetune.errors import UsageError
from tests.unit.datasets.test_folder import put, reasons, scan


def test_strictly_it_refuses_where_torchvision_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a/1.jpg", "b/2.jpg", "c/deep/3.jpg"):
        put(tmp_path / name)
    strictly = {"limit_bytes": 2**30, "seed": 0, "strict": True}
    assert scan_folder(str(tmp_path), **strictly).classes == ("a", "b", "c")  # type: ignore[arg-type]
    (tmp_path / "aa").mkdir()
    with pytest.raises(UsageError, match=r"1 class folder has no images: '.*/aa'"):
        scan_folder(str(tmp_path), **strictly)  # type: ignore[arg-type]
    (tmp_path / "aa").rmdir()
    real = os.scandir

    def refuse(path: str) -> object:
        if str(path).endswith("deep"):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(UsageError, match=r"cannot list '.*/c/deep': Permission denied") as caught:
        scan_folder(str(tmp_path), **strictly)  # type: ignore[arg-type]
    assert caught.value.hint
    assert scan(tmp_path).classes == ("a", "b")  # a sweep goes on, and says so


def test_files_that_are_too_large_are_named_and_cut_nothing_short(tmp_path: Path) -> None:
    for number in range(40):
        put(tmp_path / "a" / f"{number:02}.jpg")
    for name in ("03", "21"):
        with open(tmp_path / "a" / f"{name}-huge.jpg", "wb") as file:
            file.truncate(2**40)
    for seed in range(3):
        found = scan(tmp_path, limit_bytes=2**30, seed=seed)
        assert len(found.images) == 40
        assert set(reasons(found)) == {"a/03-huge.jpg", "a/21-huge.jpg"}
        assert "more than 64 MiB" in reasons(found)["a/03-huge.jpg"]


def test_what_may_be_a_folder_and_cannot_be_reached_is_no_other_file(tmp_path: Path) -> None:
    for name in ("a/1.jpg", "c/3.jpg"):
        put(tmp_path / name)
    (tmp_path / "b").symlink_to("b")
    (tmp_path / "a" / "2.jpg").symlink_to("2.jpg")
    found = scan(tmp_path)
    assert found.classes == ("a", "c")
    assert sorted(Path(path).name for path, _ in found.skipped) == ["2.jpg", "b"]
    with pytest.raises(UsageError, match=r"cannot access '.*/b': Too many levels of symbolic links"):
        scan_folder(str(tmp_path), limit_bytes=2**30, seed=0, strict=True)
