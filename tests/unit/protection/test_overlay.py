from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from pipetune.protection import overlay as module
from pipetune.protection.overlay import make_shadow


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    (folder / "below" / "deep").mkdir(parents=True)
    (folder / "file").write_text("contents")
    (folder / "link").symlink_to("file")
    os.mkfifo(folder / "pipe")
    return folder


def refuse(*_: Any, **__: Any) -> None:
    raise OSError(1, "Operation not permitted")


def test_a_shadow_links_to_files_and_has_empty_folders(folder: Path, tmp_path: Path) -> None:
    assert make_shadow(str(folder), str(tmp_path / "shadow"))
    shadow = tmp_path / "shadow"
    assert sorted(os.listdir(shadow)) == ["below", "file", "link"]
    assert (shadow / "file").samefile(folder / "file")
    assert os.readlink(shadow / "link") == "file"
    assert os.listdir(shadow / "below") == []


def test_where_links_are_refused_files_are_copied_up_to_a_limit(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module.os, "link", refuse)
    assert make_shadow(str(folder), str(tmp_path / "shadow"))
    assert (tmp_path / "shadow" / "file").read_text() == "contents"
    assert not (tmp_path / "shadow" / "file").samefile(folder / "file")
    monkeypatch.setattr(module, "MAX_SHADOW_BYTES", 3)
    assert not make_shadow(str(folder), str(tmp_path / "too large"))


def test_a_file_that_this_user_cannot_read_is_empty(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module.os, "link", refuse)
    monkeypatch.setattr(module.os, "access", lambda *_: False)
    assert make_shadow(str(folder), str(tmp_path / "shadow"))
    assert (tmp_path / "shadow" / "file").stat().st_size == 0
