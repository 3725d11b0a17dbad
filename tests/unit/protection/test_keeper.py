"""What is kept before a change, and put back: random changes, interrupted, several processes, full disks."""

from __future__ import annotations

import errno
import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pipetune.protection import before_change, copy_file, keeper, put_back
from pipetune.protection.journal import Entry, append_entry, read_entries
from pipetune.protection.keeper import Keeper
from pipetune.protection.kept_files import list_kept, settle_kept
from pipetune.protection.state import COPIES, JOURNAL, ProtectionFolder
from tests.unit.protection.kept_trees import KeptCalls, change_at_random, describe_tree


@pytest.mark.parametrize("seed", range(25))
def test_random_changes_are_put_back(root: Path, folder: Path, calls: KeptCalls, seed: int) -> None:
    before = describe_tree(root)
    done = change_at_random(root, calls, seed, 40)
    assert put_back.put_back(folder, folder / "kept") == ({}, ()), done
    assert describe_tree(root, list(before)) == before, done
    assert put_back.put_back(folder, folder / "kept") == ({}, ())
    assert describe_tree(root, list(before)) == before, "once more"


@pytest.mark.parametrize("seed", range(8))
def test_putting_back_may_be_killed_at_any_point(
    root: Path, folder: Path, calls: KeptCalls, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = describe_tree(root)
    change_at_random(root, calls, seed, 40)
    allowed = steps = 0

    def counted(original: Callable[..., None]) -> Callable[..., None]:
        def call(*arguments: object, **named: object) -> None:
            nonlocal steps
            steps += 1
            if steps > allowed:
                raise KeyboardInterrupt
            original(*arguments, **named)

        return call

    with monkeypatch.context() as patch:
        for name in ("rename", "unlink", "link", "makedirs", "chmod"):
            patch.setattr(os, name, counted(getattr(os, name)))
        for limit in range(0, 40, 3):
            allowed, steps = limit, 0
            try:
                put_back.put_back(folder, folder / "kept")
            except KeyboardInterrupt:
                continue
            break
    put_back.put_back(folder, folder / "kept")
    assert describe_tree(root, list(before)) == before


def test_several_names_of_a_file_stay_names_of_one_file(root: Path, folder: Path, calls: KeptCalls) -> None:
    calls.remove(str(root / "one"))
    calls.write(str(root / "b/one-again"), b"new", os.O_TRUNC)
    put_back.put_back(folder, folder / "kept")
    assert (root / "one").samefile(root / "b/one-again")
    assert (root / "one").read_text() == "content of one\n"


@pytest.mark.parametrize("seed", range(10))
def test_contents_are_put_back_from_another_file_system(
    root: Path, folder: Path, calls: KeptCalls, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def refuse(source: str, target: str, **named: bool) -> None:
        if str(target).startswith(str(folder)):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        link(source, target, **named)

    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(calls.keeper, "_device", -1)
    before = describe_tree(root)
    done = change_at_random(root, calls, seed, 40)
    assert put_back.put_back(folder, folder / "kept") == ({}, ()), done
    after = describe_tree(root, list(before))
    assert {name: state[:2] for name, state in after.items()} == {name: state[:2] for name, state in before.items()}


def test_a_renamed_file_that_is_written_to_by_its_new_name(root: Path, folder: Path, calls: KeptCalls) -> None:
    calls.rename(str(root / "two"), str(root / "new"))
    calls.write(str(root / "new"), b"x" * 100, 0)
    written = list_kept(folder, "supervised")
    assert (written.created, written.removed) == ((str(root / "new"),), (str(root / "two"),))
    put_back.put_back(folder, folder / "kept")
    assert (root / "two").read_text() == "content of two\n" * 2
    assert (root / "new").read_bytes() == b"x" * 100


def test_a_renamed_file_shares_nothing_with_its_new_name_afterwards(tmp_path: Path, root: Path) -> None:
    folder = ProtectionFolder(tmp_path)
    KeptCalls(Keeper(str(folder.path))).rename(str(root / "two"), str(root / "new"))
    assert settle_kept(folder, "supervised").is_complete
    assert not (root / "two").samefile(root / "new")
    assert (root / "two").read_bytes() == (root / "new").read_bytes()
    folder.close()
    assert not folder.path.exists()


def test_a_large_file_that_is_replaced_takes_no_room(root: Path, folder: Path, calls: KeptCalls) -> None:
    large = root / "large"
    large.write_bytes(b"x")
    os.truncate(large, keeper.MIN_MOVED_BYTES)
    inode = large.stat().st_ino
    calls.write(str(large), b"new", os.O_TRUNC)
    assert large.stat().st_ino != inode
    assert (folder / COPIES / "000000").stat().st_ino == inode
    put_back.put_back(folder, folder / "kept")
    assert large.stat().st_ino == inode
    assert large.stat().st_size == keeper.MIN_MOVED_BYTES


def test_holes_stay_holes(root: Path, folder: Path, calls: KeptCalls) -> None:
    sparse = root / "sparse"
    with open(sparse, "wb") as file:
        file.seek(1 << 30)
        file.write(b"end")
    calls.write(str(sparse), b"changed", 0)
    kept = (folder / COPIES / "000000").stat()
    assert (kept.st_size, kept.st_blocks * 512 < 1 << 20) == ((1 << 30) + 3, True)
    put_back.put_back(folder, folder / "kept")
    with open(sparse, "rb") as file:
        assert file.read(7) == b"\0" * 7


def test_a_file_that_is_opened_for_writing_and_not_changed_is_not_listed(
    root: Path, folder: Path, calls: KeptCalls
) -> None:
    before = (root / "two").stat()
    calls.write(str(root / "two"), b"", 0)
    assert not list_kept(folder, "supervised")
    put_back.put_back(folder, folder / "kept")
    assert ((root / "two").stat().st_ino, (root / "two").stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_folder_that_the_script_made_where_a_file_was_is_put_aside(
    root: Path, folder: Path, calls: KeptCalls
) -> None:
    calls.remove(str(root / "two"))
    calls.mkdir(str(root / "two"))
    calls.write(str(root / "two/new"), b"new", os.O_CREAT)
    put_back.put_back(folder, folder / "kept")
    assert (root / "two").read_text() == "content of two\n" * 2
    assert (root / f"two{put_back.ASIDE}/new").read_bytes() == b"new"


def test_the_change_is_refused_where_a_copy_finds_no_room(
    root: Path, folder: Path, calls: KeptCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy_file, "free_bytes", lambda fd: 10)
    with pytest.raises(OSError, match="No space left") as refusal:
        calls.write(str(root / "two"), b"new", 0)
    assert refusal.value.errno == errno.ENOSPC
    assert (root / "two").read_text() == "content of two\n" * 2
    assert os.listdir(folder / COPIES) == []
    assert read_entries(folder / JOURNAL) == []


def test_a_copy_that_finds_no_room_at_its_place_stays_and_is_named(
    root: Path, folder: Path, calls: KeptCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls.write(str(root / "two"), b"new", os.O_TRUNC)

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(put_back, "_replace", refuse)
        patch.setattr(put_back, "copy_file", refuse)
        (note,) = put_back.put_back(folder, folder / "kept").failures.values()
    copy = folder / COPIES / "000000"
    assert note == f"{root / 'two'} could not be put back (No space left on device); its first version is in {copy}"
    assert copy.read_text() == "content of two\n" * 2
    assert put_back.put_back(folder, folder / "kept") == ({}, ())
    assert (root / "two").read_text() == "content of two\n" * 2


def test_a_torn_line_is_left_out_and_written_over(root: Path, folder: Path, calls: KeptCalls) -> None:
    calls.write(str(root / "two"), b"new", os.O_TRUNC)
    with open(folder / JOURNAL, "ab") as file:
        file.write(b'{"path": "/torn')
    KeptCalls(Keeper(str(folder))).remove(str(root / "seven"))
    assert [Path(entry.path).name for entry in read_entries(folder / JOURNAL)] == ["two", "seven"]


def test_a_name_that_is_no_text(root: Path, folder: Path, calls: KeptCalls) -> None:
    path = os.path.join(os.fsencode(root), b"\xff\xfe")
    with open(path, "wb") as file:
        file.write(b"mine")
    calls.remove(os.fsdecode(path))
    put_back.put_back(folder, folder / "kept")
    with open(path, "rb") as file:
        assert file.read() == b"mine"


def test_a_line_that_the_disk_refuses_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fd = os.open(tmp_path / "journal", os.O_RDWR | os.O_APPEND | os.O_CREAT)
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:10]))
    with pytest.raises(OSError, match="No space left"):
        append_entry(fd, Entry(path="/a", kind="created"))
    os.close(fd)
    assert (tmp_path / "journal").read_bytes() == b""


def _write_new(folder: Path, target: Path, number: int) -> None:
    before_change.before_open(Keeper(str(folder)), str(target), os.O_WRONLY | os.O_TRUNC)
    target.write_text(f"by {number}" * 1000)


def test_processes_at_the_same_file_keep_its_first_version(root: Path, folder: Path) -> None:
    fork = multiprocessing.get_context("fork")
    children = [fork.Process(target=_write_new, args=(folder, root / "two", number)) for number in range(8)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert len(read_entries(folder / JOURNAL)) == 1
    put_back.put_back(folder, folder / "kept")
    assert (root / "two").read_text() == "content of two\n" * 2


def test_open_places_are_left_alone(root: Path, folder: Path) -> None:
    calls = KeptCalls(Keeper(str(folder), [f"{root}/b/"]))
    calls.write(str(root / "b/five"), b"new", os.O_TRUNC)
    calls.write(str(root / "b/new"), b"new", os.O_CREAT)
    assert read_entries(folder / JOURNAL) == []
