"""What is put back, and what is left to others: later work, what nobody of the script asked to write, half copies."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from pipetune.protection import put_back
from pipetune.protection.keeper import Keeper
from pipetune.protection.kept_files import list_kept, settle_kept
from pipetune.protection.state import COPIES, JOURNAL, ProtectionFolder
from pipetune.protection.words import describe_written
from tests.unit.protection.kept_trees import KeptCalls, describe_tree


def test_a_file_that_was_changed_after_the_script_had_ended_stays(
    root: Path, folder: Path, calls: KeptCalls, tmp_path: Path
) -> None:
    for name in ("two", "seven", "b/one-again"):
        calls.write(str(root / name), b"by the script", os.O_TRUNC)
    calls.remove(str(root / "b/five"))
    calls.chmod(str(root / "b/six"), 0o600)
    ended_ns = max(path.lstat().st_ctime_ns for path in root.rglob("*"))
    later = ended_ns
    for name in ("two", "b/one-again", "b/five", "b/six"):
        while later <= ended_ns:  # the kernel's clock of files has steps
            (root / name).write_text("trained for two days")
            later = (root / name).stat().st_ctime_ns
        later = ended_ns
    assert list_kept(folder, "supervised", ended_ns).changed == (str(root / "seven"),)
    failures, notes = put_back.put_back(folder, tmp_path / "aside", ended_ns)
    assert failures == {}
    assert sum("changed after the script had ended, and stays" in note for note in notes) == 3
    for name in ("two", "b/one-again", "b/five", "b/six"):
        assert (root / name).read_text() == "trained for two days"
    assert (root / "seven").read_text() == "content of seven\n" * 7
    assert (tmp_path / "aside" / str(root / "two").lstrip("/")).read_text() == "content of two\n" * 2
    assert put_back.put_back(folder, tmp_path / "aside", ended_ns).failures == {}
    assert (root / "two").read_text() == "trained for two days"


def test_a_name_of_a_file_that_was_changed_later_by_another_name(
    root: Path, folder: Path, calls: KeptCalls, tmp_path: Path
) -> None:
    calls.write(str(root / "b/one-again"), b"by the script", os.O_TRUNC)
    calls.remove(str(root / "one"))
    ended_ns = later = (root / "b/one-again").stat().st_ctime_ns
    while later <= ended_ns:
        (root / "b/one-again").write_text("trained for two days")
        later = (root / "b/one-again").stat().st_ctime_ns
    assert put_back.put_back(folder, tmp_path / "aside", ended_ns).failures == {}
    assert (root / "b/one-again").read_text() == "trained for two days"
    assert (root / "one").read_text() == "content of one\n"


def test_what_nobody_of_the_script_asked_to_write_is_set_aside(
    root: Path, folder: Path, calls: KeptCalls, tmp_path: Path
) -> None:
    before = describe_tree(root)
    for name in ("one", "two", "seven", "b/one-again", "b/five", "b/six"):
        calls.keeper.keep_in_advance(str(root / name))
    calls.write(str(root / "two"), b"by the script", os.O_TRUNC)
    calls.write(str(root / "one"), b"by the script", os.O_TRUNC)
    calls.remove(str(root / "b/six"))
    (root / "seven").write_text("by the user's editor")
    (root / "b/five").unlink()
    failures, (note,) = put_back.put_back(folder, tmp_path / "aside")
    assert failures == {}
    assert describe_tree(root, list(before)) == before
    aside = [path for path in (tmp_path / "aside").rglob("*") if path.is_file()]
    assert [path.read_text() for path in aside] == ["by the user's editor"]
    assert note.startswith("1 file of yours was changed by something other than the script's Python, perhaps by you")


def test_after_a_power_cut_nothing_is_put_back_from_half_a_copy(tmp_path: Path, root: Path) -> None:
    folder = ProtectionFolder(tmp_path)
    calls = KeptCalls(Keeper(str(folder.path)))
    calls.write(str(root / "two"), b"new", os.O_TRUNC)
    calls.write(str(root / "seven"), b"new", os.O_TRUNC)
    os.truncate(folder.path / COPIES / "000000", 0)
    journal = folder.path / JOURNAL
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(lines[0] + b"\0" * 10 + b"\n" + lines[1])
    settled = settle_kept(folder, "supervised")
    folder.close()
    assert not settled.is_complete
    assert [note.partition(" (")[0].rpartition("/")[2] for note in settled.written.notes[:1]] == [
        "two could not be put back"
    ]
    assert "1 line of the journal cannot be read" in settled.written.notes[1]
    assert (root / "two").read_text() == "new"
    assert (root / "seven").read_text() == "content of seven\n" * 7


def test_a_file_of_a_folder_that_was_read_only(root: Path, folder: Path, calls: KeptCalls) -> None:
    (root / "b").chmod(0o555)
    calls.chmod(str(root / "b"), 0o755)
    calls.remove(str(root / "b/five"))
    replaced = os.rename

    def rename(source: str, target: str) -> None:
        if not os.lstat(os.path.dirname(target)).st_mode & 0o200:  # as for everybody but root
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        replaced(source, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "rename", rename)
        assert put_back.put_back(folder, folder / "kept") == ({}, ())
    assert (root / "b/five").read_text() == "content of b/five\n" * 5
    assert (root / "b").stat().st_mode & 0o777 == 0o555
    (root / "b").chmod(0o755)


def test_a_folder_in_the_place_of_an_empty_one_is_listed(root: Path, folder: Path, calls: KeptCalls) -> None:
    calls.mkdir(str(root / "made"))
    calls.write(str(root / "made/new"), b"new", os.O_CREAT)
    calls.rename(str(root / "made"), str(root / "empty"))
    assert list_kept(folder, "supervised").created == (str(root / "empty/new"),)


def test_files_are_put_back_where_the_script_has_filled_the_disk(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = ProtectionFolder(tmp_path)
    calls = KeptCalls(Keeper(str(folder.path)))
    calls.write(str(root / "two"), b"new", os.O_TRUNC)
    calls.remove(str(root / "seven"))

    def refuse(_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", refuse)
    written, is_complete = settle_kept(folder, "supervised")
    folder.close()
    assert is_complete
    assert (written.changed, written.removed) == ((str(root / "two"),), (str(root / "seven"),))
    assert (root / "two").read_text() == "content of two\n" * 2
    assert (root / "seven").exists()


def test_what_could_not_be_put_back_is_not_said_to_be_as_before_and_not_for_ever(
    root: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    protection = ProtectionFolder(run)
    calls = KeptCalls(Keeper(str(protection.path)))
    calls.write(str(root / "two"), b"new", os.O_TRUNC)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(put_back, "_restore", refuse)
        settled = settle_kept(protection, "supervised")
    assert (settled.is_complete, settled.written.unrestored) == (False, (str(root / "two"),))
    (line,) = describe_written(settled.written, str(root))
    assert line.startswith(f"{root / 'two'} could not be put back (No space left on device); its first version is in")
    settled = settle_kept(protection, "supervised")
    assert describe_written(settled.written, str(root)) == [
        "the script wrote or removed 1 file of yours, which is as it was before: two"
    ]
    protection.close()
