from __future__ import annotations

import os
from pathlib import Path

import pytest

from pipetune.records.written import UNPROTECTED, WrittenFiles
from pipetune.sweeping import changed_files
from pipetune.sweeping.changed_files import list_changes, places_of, snapshot


def taken(*places: Path, without: tuple[Path, ...] = ()) -> dict[str, tuple[int, int]]:
    found = snapshot(places, without)
    assert found is not None
    return dict(found)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("train.py", "data/a.jpg", "data/deep/b.jpg", "out/last.pth"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


def test_new_changed_and_removed_files_are_told(folder: Path) -> None:
    before = taken(folder)
    (folder / "out" / "new.pth").touch()
    (folder / "out" / "last.pth").write_text("longer than before")
    (folder / "data" / "a.jpg").unlink()
    assert list_changes(before, taken(folder)) == WrittenFiles(
        mechanism=UNPROTECTED,
        created=(str(folder / "out/new.pth"),),
        changed=(str(folder / "out/last.pth"),),
        removed=(str(folder / "data/a.jpg"),),
    )


def test_a_file_of_the_same_size_that_was_written_again_is_told(folder: Path) -> None:
    before = taken(folder)
    os.utime(folder / "train.py", ns=(1, 1))
    assert list_changes(before, taken(folder)).changed == (str(folder / "train.py"),)


def test_reading_changes_nothing(folder: Path) -> None:
    before = taken(folder)
    (folder / "train.py").read_text()
    (folder / "empty folder").mkdir()
    assert not list_changes(before, taken(folder))


@pytest.mark.parametrize("name", ["__pycache__", ".git", "pipetune-runs"])
def test_what_everybody_writes_is_left_out(name: str, folder: Path) -> None:
    before = taken(folder)
    (folder / "data" / name).mkdir()
    (folder / "data" / name / "x").touch()
    assert not list_changes(before, taken(folder))


def test_so_are_folders_that_are_named(folder: Path) -> None:
    found = taken(folder, without=(folder / "out", folder / "not there"))
    assert str(folder / "train.py") in found
    assert not any(path.startswith(str(folder / "out")) for path in found)


def test_links_are_not_followed(folder: Path) -> None:
    (folder / "loop").symlink_to(folder)
    (folder / "broken").symlink_to(folder / "nothing")
    assert {str(folder / "loop"), str(folder / "broken")} <= set(taken(folder))


def test_a_place_within_another_counts_once(folder: Path) -> None:
    assert taken(folder, folder / "out") == taken(folder)


def test_where_there_are_too_many_nothing_is_known(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changed_files, "MOST", 3)
    assert snapshot([folder]) is None
    monkeypatch.setattr(changed_files, "MOST", 4)
    assert snapshot([folder]) is not None


def test_a_place_that_is_not_there_or_not_readable_has_no_files(folder: Path) -> None:
    assert taken(folder / "nothing") == {}


@pytest.mark.parametrize("command", [("python", "train.py", "--out", "out"), ("python", "train.py", "--out=out")])
def test_folders_that_the_command_names_are_looked_at(command: tuple[str, ...], folder: Path) -> None:
    assert places_of(command, folder) == [folder, folder / "out"]


def test_folders_elsewhere_too_each_once(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    assert places_of(["x", f"--a={other}", "--b", str(other), ".", "out/../out"], folder) == [
        folder, other, folder / "out"
    ]  # fmt: skip


@pytest.mark.parametrize("word", ["--out=not-there", "train.py", "{scratch}", "--out={scratch}/out", "", "--x="])
def test_what_is_no_folder_is_not(word: str, folder: Path) -> None:
    assert places_of(["python", word], folder) == [folder]


@pytest.mark.parametrize(
    "word", ["x" * 300, "a\0b", "x/" * 3000], ids=["a long line of code", "a null byte", "a long path"]
)
def test_words_that_are_no_names_of_files_do_no_harm(word: str, folder: Path) -> None:
    assert places_of(["sh", "-c", word], folder) == [folder]
