from __future__ import annotations

import os
from pathlib import Path

import pytest

from pipetune.protection import foreign_folders as module
from pipetune.protection.foreign_folders import prepare_folders


def tree(upper: Path) -> list[str]:
    return sorted(str(path.relative_to(upper)) for path in upper.rglob("*"))


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    """``lab`` belongs to another user, ``lab/me`` to this one, as far as the tests' user is concerned."""
    (tmp_path / "home" / "lab" / "me" / "job").mkdir(parents=True)
    (tmp_path / "home" / "other" / "deep").mkdir(parents=True)
    return tmp_path / "home"


def test_folders_of_others_above_ones_own_are_made(lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    for name in ("lab", "other", "other/deep"):
        os.chown(lab / name, 1234, 1234)
    monkeypatch.setattr(module.os, "access", lambda *_: False)
    (tmp_path / "upper").mkdir()
    prepare_folders(str(lab), str(tmp_path / "upper"), [])
    assert tree(tmp_path / "upper") == ["lab"]


def test_folders_of_others_that_are_writable_are_made(
    lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    for name in ("other", "other/deep"):
        os.chown(lab / name, 1234, 1234)
    monkeypatch.setattr(module.os, "access", lambda path, _: str(path).endswith("deep"))
    (tmp_path / "upper").mkdir()
    prepare_folders(str(lab), str(tmp_path / "upper"), [])
    assert tree(tmp_path / "upper") == ["other", "other/deep"]


def test_ones_own_folders_need_nothing(lab: Path, tmp_path: Path) -> None:
    (tmp_path / "upper").mkdir()
    prepare_folders(str(lab), str(tmp_path / "upper"), [str(lab / "lab" / "me")])
    assert tree(tmp_path / "upper") == []
