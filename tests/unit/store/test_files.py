"""What is left in the folder when the disk refuses, by real refusals where the system can make them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipetune.errors import PipetuneError
from pipetune.store import files
from pipetune.store.folder import RunFolder, load_run
from tests import ROOT
from tests.unit.samples import outcome


def child(program: str, *arguments: object, prefix: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*prefix, sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


FILE_TOO_LARGE = """
import pathlib, resource, sys
from pipetune.errors import PipetuneError
from pipetune.store.folder import RunFolder
from tests.unit.samples import outcome
with RunFolder(pathlib.Path(sys.argv[1])) as folder:
    folder.write_json("run.json", {"kept": True})
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, resource.RLIM_INFINITY))
    whole = 0
    try:
        while True:
            folder.append_outcome(outcome(whole + 1))
            whole += 1
    except PipetuneError as error:
        print(whole, error, sep="|")
    try:
        folder.write_json("run.json", {"long": "x" * 10000})
    except PipetuneError as error:
        print(error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    folder.append_outcome(outcome(99))
"""


def test_a_file_size_limit_leaves_whole_lines_and_whole_files(tmp_path: Path) -> None:
    done = child(FILE_TOO_LARGE, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    first, second = done.stdout.splitlines()
    whole, message = first.split("|")
    hint = "File too large; raise the limit of file sizes (ulimit -f)"
    assert message == f"cannot write {tmp_path}/outcomes.jsonl: {hint}"
    assert second == f"cannot write {tmp_path}/run.json: {hint}"
    stored = load_run(tmp_path)
    assert stored.problems == ()
    assert stored.run["kept"] is True
    assert [one.candidate.num_workers for one in stored.outcomes] == [*range(1, int(whole) + 1), 99]
    assert int(whole) >= 1
    assert not list(tmp_path.glob(".*"))


DISK_FULL = """
import pathlib, subprocess, sys
from pipetune.errors import PipetuneError
from pipetune.store.folder import RunFolder, load_run
from tests.unit.samples import outcome
disk = pathlib.Path(sys.argv[1])
mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", disk], capture_output=True, text=True)
if mounted.returncode:
    sys.exit("cannot mount: " + mounted.stderr)
filler = disk / "filler"
filler.write_bytes(bytes(200 * 1024))
(disk / "run").mkdir()
with RunFolder(disk / "run") as folder:
    folder.write_json("run.json", {"kept": True})
    whole = 0
    try:
        while True:
            folder.append_outcome(outcome(whole + 1))
            whole += 1
    except PipetuneError as error:
        print(error)
    try:
        folder.write_json("run.json", {"long": "x" * 60000})
    except PipetuneError as error:
        print(error)
    full = load_run(disk / "run")
    assert (full.problems, len(full.outcomes), full.run["kept"]) == ((), whole, True), full.problems
    assert whole > 1
    filler.unlink()
    folder.append_outcome(outcome(99))
    after = load_run(disk / "run")
    assert (after.problems, len(after.outcomes)) == ((), whole + 1), after.problems
subprocess.run(["mount", "-o", "remount,bind,ro", disk], check=True)
assert load_run(disk / "run") == after
try:
    RunFolder(disk / "run")
except PipetuneError as error:
    print(error)
"""


def test_a_full_and_then_a_read_only_disk(tmp_path: Path) -> None:
    if shutil.which("unshare") is None or shutil.which("mount") is None:
        pytest.skip("no unshare and mount to make a small disk with")
    # In a mount namespace of its own, so that the disk goes away with the child whatever happens.
    done = child(DISK_FULL, tmp_path, prefix=("unshare", "--user", "--map-root-user", "--mount"))
    if "unshare: " in done.stderr or "cannot mount" in done.stderr:
        pytest.skip(f"cannot make a small disk here: {done.stderr.strip()}")
    assert (done.returncode, done.stderr) == (0, "")
    full = "No space left on device; free some space, or name another place"
    assert done.stdout.splitlines() == [
        f"cannot write {tmp_path}/run/outcomes.jsonl: {full}",
        f"cannot write {tmp_path}/run/run.json: {full}",
        f"cannot lock {tmp_path}/run/lock: Read-only file system; name another place",
    ]


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    opened = RunFolder(tmp_path)
    opened.write_json("run.json", {"kept": True})
    opened.append_outcome(outcome(1))
    return opened


def test_a_line_of_which_the_disk_took_a_part_is_cut_off(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    write, calls = os.write, []

    def part_then_full(fd: int, data: memoryview) -> int:
        calls.append(len(data))
        if len(calls) == 1:
            return write(fd, data[:10])
        raise OSError(28, "No space left on device")

    before = (folder.path / "outcomes.jsonl").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", part_then_full)
        with pytest.raises(PipetuneError, match="No space left on device"):
            folder.append_outcome(outcome(2))
    assert len(calls) == 2
    assert (folder.path / "outcomes.jsonl").read_bytes() == before


def test_where_even_cutting_off_fails_the_next_line_is_still_not_glued_on(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write

    def part_then_interrupted(fd: int, data: memoryview) -> int:
        write(fd, data[:10])
        raise OSError(5, "Input/output error")

    def broken(fd: int, size: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", part_then_interrupted)
        patch.setattr(os, "ftruncate", broken)
        with pytest.raises(PipetuneError, match="Input/output error"):
            folder.append_outcome(outcome(2))
    (problem,) = load_run(folder.path).problems
    assert problem == "outcomes.jsonl line 2 was left out: it was not written to its end"
    folder.append_outcome(outcome(3))
    stored = load_run(folder.path)
    assert stored.problems == ()
    assert [one.candidate.num_workers for one in stored.outcomes] == [1, 3]


@pytest.mark.parametrize(("name", "kept"), [("write", [1]), ("fsync", [1, 2])])
def test_ctrl_c_loses_a_part_of_a_line_but_no_whole_line(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch, name: str, kept: list[int]
) -> None:
    write = os.write

    def interrupted(fd: int, data: bytes = b"") -> int:
        write(fd, data[:10]) if data else None
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            folder.append_outcome(outcome(2))
    stored = load_run(folder.path)
    assert stored.problems == ()
    assert [one.candidate.num_workers for one in stored.outcomes] == kept


def test_an_outcome_that_did_not_reach_the_disk_is_not_half_kept(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(fd: int) -> None:
        raise OSError(5, "Input/output error")

    before = (folder.path / "outcomes.jsonl").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", broken)
        with pytest.raises(PipetuneError, match="Input/output error"):
            folder.append_outcome(outcome(2))
    assert (folder.path / "outcomes.jsonl").read_bytes() == before


def test_a_file_that_cannot_be_put_in_place_leaves_the_old_one(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", broken)
        with pytest.raises(PipetuneError, match=r"cannot write .*/run.json: Permission denied; check its permissions"):
            folder.write_json("run.json", {"kept": False})
    assert load_run(folder.path).run["kept"] is True
    assert not list(folder.path.glob(".*"))


def test_a_link_that_waits_beside_the_target_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    for name in (".out.json.tmp", "out.json.tmp"):
        (tmp_path / name).symlink_to(victim)
    files.replace_file(tmp_path / "out.json", [b"ours"])
    assert victim.read_text() == "mine"
    assert (tmp_path / "out.json").read_bytes() == b"ours"
    assert not (tmp_path / "out.json").is_symlink()


def test_a_file_that_is_there_already_is_not_written_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files.secrets, "token_hex", lambda _: "foreseen")
    victim = tmp_path / "victim"
    victim.write_text("mine")
    link = tmp_path / ".pipetune-foreseen.tmp"
    link.symlink_to(victim)
    with pytest.raises(PipetuneError, match="File exists"):
        files.replace_file(tmp_path / "out.json", [b"ours"])
    assert victim.read_text() == "mine"
    assert link.is_symlink()


def test_permissions_of_a_new_file(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        files.replace_file(tmp_path / "open", [b"x"])
        files.replace_file(tmp_path / "mine", [b"x"], mode=0o600)
    finally:
        os.umask(before)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("open", "mine")] == [0o644, 0o600]


def test_folders_that_cannot_be_synced_are_no_failure(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(fd: int) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, "fsync", unsupported)
    files.sync_path(folder.path)


def test_a_folder_that_was_deleted_meanwhile(folder: RunFolder) -> None:
    shutil.rmtree(folder.path)
    with pytest.raises(PipetuneError, match=f"cannot write {folder.path}/outcomes.jsonl: No such file or directory"):
        folder.append_outcome(outcome(2))


def test_the_lock_is_done_without_where_the_file_system_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(fd: int, operation: int) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("pipetune.store.lock.fcntl.flock", unsupported)
    open_files = len(os.listdir("/proc/self/fd"))
    with RunFolder(tmp_path) as folder:
        folder.append_outcome(outcome(1))
    assert len(load_run(tmp_path).outcomes) == 1
    assert len(os.listdir("/proc/self/fd")) == open_files


def test_a_file_whose_parts_fail_or_are_interrupted_stays_as_it_was(tmp_path: Path) -> None:
    target = tmp_path / "file"
    files.replace_file(target, [b"old"])

    def parts() -> Iterator[bytes]:
        yield b"new"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        files.replace_file(target, parts())
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("kept", [0, 1, 3, 40])
@pytest.mark.parametrize("torn", [1, 2, 3, 100])
def test_a_torn_line_is_found_from_the_end_in_small_pieces(
    kept: int, torn: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_BACKWARDS_BYTES", 3)
    whole = b"".join(b"%d\n" % number for number in range(kept))
    (tmp_path / "x").write_bytes(whole + b"y" * torn)
    with open(tmp_path / "x", "rb+") as file:
        assert files._end_of_lines(file.fileno()) == len(whole)
    assert (tmp_path / "x").read_bytes() == whole
