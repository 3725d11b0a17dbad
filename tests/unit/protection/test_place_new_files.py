from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from pipetune.protection import place_new_files as module
from pipetune.protection.place_new_files import keep_contested, place_new_files


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    (tmp_path / "stored" / "folder").mkdir(parents=True)
    (tmp_path / "stored" / "file").write_text("new")
    (tmp_path / "stored" / "folder" / "inside").write_text("inside")
    (tmp_path / "stored" / "link").symlink_to("file")
    (tmp_path / "real").mkdir()
    return tmp_path / "stored"


def created(stored: Path, *names: str) -> dict[str, str]:
    return {str(stored.parent / "real" / name): str(stored / name) for name in names}


ALL = ("file", "folder", "folder/inside", "link")


@pytest.fixture(params=["linked", "copied", "no links at all"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Another file system refuses a link from the layer, some refuse any."""
    real_link = os.link

    def link(source: str, target: str, **options: Any) -> None:
        if request.param == "no links at all" or (request.param == "copied" and "/stored/" in source):
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        real_link(source, target, **options)

    monkeypatch.setattr(module.os, "link", link)
    return str(request.param)


def test_new_files_get_to_their_place(stored: Path, tmp_path: Path, way: str) -> None:
    os.chmod(stored / "folder", 0o750)
    os.utime(stored / "file", ns=(1, 10**18))
    assert place_new_files(created(stored, *ALL), tmp_path / "kept") == ((), ())
    real = tmp_path / "real"
    assert (real / "file").read_text() == "new"
    assert (real / "file").stat().st_mtime_ns == 10**18
    assert (real / "folder" / "inside").read_text() == "inside"
    assert (real / "folder").stat().st_mode & 0o777 == 0o750
    assert os.readlink(real / "link") == "file"
    assert sorted(os.listdir(real)) == ["file", "folder", "link"], "nothing unfinished is left"
    assert not (stored / "file").exists()


def test_a_link_to_a_folder_is_not_followed(stored: Path, tmp_path: Path, way: str) -> None:
    (tmp_path / "data").mkdir(mode=0o700)
    (tmp_path / "real" / "folder").symlink_to(tmp_path / "data")
    notes, failures = place_new_files(created(stored, "folder", "folder/inside"), tmp_path / "kept")
    assert (failures, os.listdir(tmp_path / "data")) == ((), [])
    assert (tmp_path / "kept" / str(tmp_path / "real/folder/inside").lstrip("/")).read_text() == "inside"
    assert "something else is there" in notes[-1]


def test_a_folder_that_takes_no_files(stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_link = os.link

    def link(source: str, target: str, **options: Any) -> None:
        if target.startswith(str(tmp_path / "real")):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        real_link(source, target, **options)

    monkeypatch.setattr(module.os, "link", link)
    monkeypatch.setattr(module, "_copy", link)
    notes, failures = place_new_files(created(stored, "file"), tmp_path / "kept")
    assert not failures
    assert (tmp_path / "kept" / str(tmp_path / "real/file").lstrip("/")).read_text() == "new"
    assert "Permission denied" in notes[0]


def test_what_is_there_by_now_stays(stored: Path, tmp_path: Path, way: str) -> None:
    (tmp_path / "real" / "file").write_text("somebody else's")
    (tmp_path / "real" / "folder").write_text("a file")
    notes, failures = place_new_files(created(stored, *ALL), tmp_path / "kept")
    assert not failures
    assert (tmp_path / "real" / "file").read_text() == "somebody else's"
    assert (tmp_path / "real" / "folder").read_text() == "a file"
    kept = tmp_path / "kept" / str(tmp_path).lstrip("/") / "real"
    assert (kept / "file").read_text() == "new"
    assert (kept / "folder" / "inside").read_text() == "inside"
    assert any(str(kept / "file") in note for note in notes)


def test_what_another_program_wrote_too_is_kept_elsewhere(stored: Path, tmp_path: Path) -> None:
    (tmp_path / "real" / "file").write_text("theirs")
    notes, failures = keep_contested(created(stored, "file"), tmp_path / "kept")
    assert not failures
    assert (tmp_path / "real" / "file").read_text() == "theirs"
    kept = tmp_path / "kept" / str(tmp_path).lstrip("/") / "real" / "file"
    assert kept.read_text() == "new"
    assert str(kept) in notes[0]


def test_on_a_full_disk_the_file_stays_and_is_named(
    stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(module.os, "link", refuse)
        notes, failures = place_new_files(created(stored, *ALL), tmp_path / "kept")
    assert not notes
    assert "No space left" in failures[0]
    assert str(stored / "file") in failures[0]
    assert place_new_files(created(stored, *ALL), tmp_path / "kept") == ((), ()), "and then it is moved"
    assert (tmp_path / "real" / "file").read_text() == "new"


def test_moving_twice_does_nothing_more(stored: Path, tmp_path: Path) -> None:
    place_new_files(created(stored, *ALL), tmp_path / "kept")
    (tmp_path / "real" / "file").write_text("edited since")
    assert place_new_files(created(stored, *ALL), tmp_path / "kept") == ((), ())
    assert (tmp_path / "real" / "file").read_text() == "edited since"


def test_a_copy_keeps_its_holes_and_leaves_room(stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    with open(stored / "file", "wb") as file:
        file.truncate(1 << 30)
        file.write(b"x" * (1 << 20))
    monkeypatch.setattr(module.os, "link", refuse)
    with monkeypatch.context() as full:
        full.setattr("pipetune.protection.copy_file.free_bytes", lambda fd: 1 << 20)
        assert "No space left" in place_new_files(created(stored, "file"), tmp_path / "kept").failures[0]
    assert os.listdir(tmp_path / "real") == [], "nothing unfinished takes room"
    assert place_new_files(created(stored, "file"), tmp_path / "kept") == ((), ())
    assert 512 * (tmp_path / "real/file").stat().st_blocks < 64 << 20
