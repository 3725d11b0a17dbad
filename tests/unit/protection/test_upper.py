"""Folders as overlayfs leaves them, without one: a whiteout takes root to make, an attribute does not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pipetune.protection.foreign_folders import MODE_ATTRIBUTE
from pipetune.protection.upper import UpperContents, files_below, read_upper

ATTRIBUTES = "user.overlay."


@pytest.fixture
def lower(tmp_path: Path) -> Path:
    for name in ("a", "b", "d/x", "d/y", "d/e/z"):
        (tmp_path / "lower" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "lower" / name).write_text(name)
    return tmp_path / "lower"


@pytest.fixture
def upper(tmp_path: Path) -> Path:
    (tmp_path / "upper").mkdir()
    return tmp_path / "upper"


def read(upper: Path, lower: Path, began_ns: int = 1 << 62) -> UpperContents:
    contents = UpperContents()
    read_upper(str(upper), str(lower), ATTRIBUTES, began_ns, contents)
    return contents


def set_attribute(path: Path, name: str, value: bytes) -> None:
    try:
        os.setxattr(path, ATTRIBUTES + name, value)
    except OSError as error:
        pytest.skip(f"no attributes of users here: {error}")


def test_new_and_changed_files(upper: Path, lower: Path) -> None:
    (upper / "a").write_text("other")
    (upper / "new").mkdir()
    (upper / "new" / "file").write_text("x")
    contents = read(upper, lower)
    assert contents.changed == {str(lower / "a")}
    assert contents.created == {
        str(lower / "new"): str(upper / "new"), str(lower / "new/file"): str(upper / "new/file"),
    }  # fmt: skip
    assert not contents.removed


def test_a_folder_in_the_place_of_a_link_has_nothing_of_the_other_folder(upper: Path, lower: Path) -> None:
    (lower / "latest").symlink_to("d")
    (upper / "latest").mkdir()
    (upper / "latest" / "x").write_text("new")
    set_attribute(upper / "latest", "opaque", b"y")
    contents = read(upper, lower)
    assert contents.changed == {str(lower / "latest")}
    assert contents.created == {str(lower / "latest/x"): str(upper / "latest/x")}
    assert not contents.removed


def test_a_file_that_another_program_wrote_meanwhile_is_contested(upper: Path, lower: Path) -> None:
    (upper / "a").write_text("the script's")
    contents = read(upper, lower, began_ns=0)
    assert contents.contested == {str(lower / "a"): str(upper / "a")}
    assert not contents.changed


def test_a_file_that_was_opened_and_not_written_is_unchanged(upper: Path, lower: Path) -> None:
    (upper / "a").write_text("a")
    times = (lower / "a").stat()
    os.utime(upper / "a", ns=(times.st_atime_ns, times.st_mtime_ns))
    assert not read(upper, lower).changed
    (upper / "a").write_text("b")
    os.utime(upper / "a", ns=(times.st_atime_ns, times.st_mtime_ns))
    assert read(upper, lower).changed == {str(lower / "a")}, "the times are those of before, the contents are not"


@pytest.mark.parametrize("change", ["mode", "time", "link", "folder"])
def test_what_is_another_thing_now_is_changed(change: str, upper: Path, lower: Path) -> None:
    times = (lower / "a").stat()
    if change == "link":
        (upper / "a").symlink_to("b")
    elif change == "folder":
        (upper / "a").mkdir()
    else:
        (upper / "a").write_text("a")
        os.utime(upper / "a", ns=(0, times.st_mtime_ns + (change == "time")))
        (upper / "a").chmod(0o600 if change == "mode" else times.st_mode)
    assert read(upper, lower).changed == {str(lower / "a")}


def test_a_whiteout_is_a_removal(upper: Path, lower: Path) -> None:
    try:
        for name in ("a", "d", "gone"):
            os.mknod(upper / name, 0o020000, os.makedev(0, 0))
    except PermissionError:
        pytest.skip("this user may not make a whiteout")
    assert read(upper, lower).removed == {str(lower / name) for name in ("a", "d/x", "d/y", "d/e/z")}


def test_an_opaque_folder_hides_what_was_there(upper: Path, lower: Path) -> None:
    (upper / "d" / "e").mkdir(parents=True)
    (upper / "d" / "x").write_text("new")
    set_attribute(upper / "d", "opaque", b"y")
    contents = read(upper, lower)
    assert contents.changed == {str(lower / "d/x")}
    assert contents.removed == {str(lower / "d/y"), str(lower / "d/e/z")}, "also in folders that were made anew"


def test_a_merged_folder_hides_nothing(upper: Path, lower: Path) -> None:
    (upper / "d").mkdir()
    assert not read(upper, lower).removed


def test_a_renamed_folder_is_told(upper: Path, lower: Path) -> None:
    (upper / "moved").mkdir()
    set_attribute(upper / "moved", "redirect", b"d")
    contents = read(upper, lower)
    assert contents.renamed_folders == {str(lower / "moved"): str(lower / "d")}
    assert list(contents.created) == [str(lower / "moved")]


def test_a_folder_whose_owner_it_could_not_get_is_unchanged(upper: Path, lower: Path) -> None:
    (upper / "d").mkdir()
    os.chmod(upper / "d", 0o500)
    assert read(upper, lower).changed == {str(lower / "d")}
    os.chmod(upper / "d", 0o500)
    try:
        os.setxattr(upper / "d", MODE_ATTRIBUTE, str(0o500).encode())
    except OSError as error:
        pytest.skip(f"no attributes of users here: {error}")
    assert not read(upper, lower).changed


def test_pipes_of_ended_processes_are_left_out(upper: Path, lower: Path) -> None:
    os.mkfifo(upper / "pipe")
    assert not read(upper, lower).created


def test_files_below_follow_no_link(lower: Path) -> None:
    (lower / "d" / "up").symlink_to("..")
    (lower / "empty").mkdir()
    assert set(files_below(str(lower / "d"))) == {str(lower / "d" / name) for name in ("x", "y", "e/z", "up")}
    assert list(files_below(str(lower / "empty"))) == [str(lower / "empty")]
    assert list(files_below(str(lower / "a"))) == [str(lower / "a")]
