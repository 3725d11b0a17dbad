from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from pipetune.errors import UsageError
from pipetune.measure import page_cache
from pipetune.measure.page_cache import CacheState, equalise, residency

PAGE = os.sysconf("SC_PAGE_SIZE")
ZFS_MAGIC = 0x2FC12FC1


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Twelve files of 1 to 12 and a half pages, one with an odd name, just written and so partly dirty."""
    paths = [os.fsencode(tmp_path / f"{number}.jpg") for number in range(11)]
    paths.append(os.fsencode(tmp_path) + b"/new\nline \xff.jpg")
    for number, path in enumerate(paths):
        with open(path, "wb") as file:
            file.write(os.urandom(PAGE * number + PAGE // 2))
    return [os.fsdecode(path) for path in paths]


def on_a_disk(folder: Path) -> bool:
    return page_cache._obstacle([str(folder)], "cold") is None


def test_cold_then_warm_is_verified(files: list[str], tmp_path: Path) -> None:
    if not on_a_disk(tmp_path):
        pytest.skip("the temporary folder lies on tmpfs, which cannot be cold")
    assert equalise(files, "cold") == CacheState(state="cold", resident_frac=0.0, note=None)
    assert residency(files).frac == 0.0
    assert equalise(files, "warm") == CacheState(state="warm", resident_frac=1.0, note=None)
    assert residency(files).frac == 1.0


def test_pages_and_not_files_are_counted(tmp_path: Path) -> None:
    if not on_a_disk(tmp_path):
        pytest.skip("the temporary folder lies on tmpfs, which cannot be cold")
    small, large = str(tmp_path / "small"), str(tmp_path / "large")
    Path(small).write_bytes(bytes(PAGE))
    Path(large).write_bytes(bytes(9 * PAGE))
    equalise([small, large], "cold")
    Path(small).read_bytes()
    assert residency([small, large]).frac == pytest.approx(0.1)


def test_tmpfs_cannot_be_cold() -> None:
    folder = Path("/dev/shm")
    if not os.access(folder, os.W_OK) or on_a_disk(folder):
        pytest.skip("no tmpfs at /dev/shm")
    file = folder / f"pipetune-test-{os.getpid()}"
    file.write_bytes(bytes(5 * PAGE))
    try:
        cold, warm = equalise([str(file)], "cold"), equalise([str(file)], "warm")
    finally:
        file.unlink()
    assert (cold.resident_frac, cold.note is None) == (1.0, False)
    assert cold.note is not None
    assert "tmpfs" in cold.note
    assert (warm.resident_frac, warm.note) == (1.0, None)


def test_zfs_is_never_verified(files: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    real = page_cache._libc()

    class Statfs:
        def __getattr__(self, name: str) -> object:
            return getattr(real, name)

        def statfs(self, path: bytes, raw: ctypes.Array[ctypes.c_char]) -> int:
            ctypes.c_long.from_buffer(raw).value = ZFS_MAGIC
            return 0

    monkeypatch.setattr(page_cache, "_libc", Statfs)
    for state in ("warm", "cold"):
        found = equalise(files, state)
        assert found.note is not None
        assert "ZFS" in found.note


def test_pages_that_stay_are_reported(files: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_cache, "_mincore", lambda fd, size: b"\1\0")
    monkeypatch.setattr(page_cache, "_obstacle", lambda paths, state: None)
    stages: list[str] = []
    cold = equalise(files, "cold", progress=lambda stage, done, total: stages.append(stage))
    assert (cold.resident_frac, cold.note is None) == (0.5, False)
    assert cold.note is not None
    assert cold.note.startswith("50 % of the pages are in the page cache although they were dropped")
    assert list(dict.fromkeys(stages)) == ["dropping from the page cache", "writing back and dropping again"]
    warm = equalise(files, "warm")
    assert warm.note is not None
    assert warm.note.startswith("only 50 % of the pages")
    assert "available" in warm.note


@pytest.mark.parametrize(
    ("state", "flags", "verified"),
    [("warm", 98, True), ("warm", 97, False), ("cold", 2, True), ("cold", 3, False)],
)
def test_thresholds(state: str, flags: int, verified: bool, files: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_cache, "_mincore", lambda fd, size: b"\1" * flags + b"\0" * (100 - flags))
    monkeypatch.setattr(page_cache, "_obstacle", lambda paths, state: None)
    found = equalise(files, state)
    assert (found.note is None, found.resident_frac) == (verified, flags / 100)


def test_files_of_others_are_not_believed(files: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_cache, "_obstacle", lambda paths, state: None)
    monkeypatch.setattr(page_cache, "_may_see_residency", lambda path, owner: False)
    for state in ("warm", "cold"):
        found = equalise(files, state)
        assert (found.resident_frac, found.note is None) == (None, False)
        assert found.note is not None
        assert found.note.startswith("12 of 12 files have another owner")
    monkeypatch.setattr(page_cache, "_may_see_residency", lambda path, owner: "5.jpg" not in path)
    found = equalise(files, "warm")
    assert (found.resident_frac, found.note is None) == (1.0, False)


@pytest.mark.parametrize(
    ("owner_is_us", "owns_all", "writable", "expected"),
    [(True, False, False, True), (False, True, False, True), (False, False, True, True), (False, False, False, False)],
)
def test_who_may_see_residency(
    owner_is_us: bool, owns_all: bool, writable: bool, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_cache, "_owns_all_files", lambda: owns_all)
    monkeypatch.setattr(os, "access", lambda path, mode, effective_ids: writable)
    assert page_cache._may_see_residency("/x", os.geteuid() + (not owner_is_us)) is expected


def test_the_kernel_misleads_who_does_not_own_a_file(tmp_path: Path) -> None:
    if os.geteuid() != 0 or not on_a_disk(tmp_path):
        pytest.skip("needs root to become somebody else, and a disk")
    file = tmp_path / "file"
    file.write_bytes(bytes(4 * PAGE))
    equalise([str(file)], "cold")
    fd = os.open(file, os.O_RDONLY)
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        # The file is cold; to a user who does not own it, the kernel reports all of it as resident.
        os._exit(0 if page_cache._mincore(fd, 4 * PAGE) == b"\1" * 4 else 1)
    os.close(fd)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert residency([str(file)]).frac == 0.0


def test_nothing_to_see(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    none = equalise([], "cold")
    assert none == CacheState(state="cold", resident_frac=None, note="there are no files to make cold")
    empty = equalise([str(tmp_path / "empty")], "warm")
    assert (empty.resident_frac, empty.note is None) == (None, False)
    assert empty.note == "the files are empty, so there is nothing to make warm"
    assert residency([]).frac is None
    assert residency([str(tmp_path / "missing")]).frac is None


def test_files_that_cannot_be_mapped_are_reported(files: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(fd: int, size: int) -> bytes:
        raise OSError(19, "No such device")

    monkeypatch.setattr(page_cache, "_mincore", refuse)
    monkeypatch.setattr(page_cache, "_obstacle", lambda paths, state: None)
    found = equalise(files, "warm")
    assert (found.resident_frac, found.note is None) == (None, False)
    assert found.note == "12 of 12 files could not be opened or mapped, so the rest is all that is known"


def test_an_empty_file_among_others_counts_nothing(files: list[str], tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    assert equalise([*files, str(tmp_path / "empty")], "warm").note is None


@pytest.mark.parametrize("state", ["warm", "cold"])
def test_a_missing_file_is_named(state: str, files: list[str], tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.jpg")
    with pytest.raises(FileNotFoundError) as caught:
        equalise([*files, missing], state)
    assert caught.value.filename == missing


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError) as caught:
        equalise([str(tmp_path)], "warm")
    assert caught.value.filename == str(tmp_path)


def test_unknown_state() -> None:
    with pytest.raises(UsageError, match="'hot' does not exist; use warm or cold"):
        equalise([], "hot")


def test_many_files_are_judged_by_a_sample(files: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    real = page_cache._may_see_residency
    monkeypatch.setattr(page_cache, "SAMPLE_FILES", 5)
    monkeypatch.setattr(page_cache, "_may_see_residency", lambda path, owner: asked.append(path) or real(path, owner))  # type: ignore[func-returns-value]
    assert residency(files).frac is not None
    assert len(set(asked)) == 5
    first = list(asked)
    asked.clear()
    residency(files)
    assert asked == first


def test_progress_is_complete_and_rare(files: list[str]) -> None:
    calls: list[tuple[str, int, int | None]] = []
    many: Sequence[str] = files * 100
    equalise(many, "warm", progress=lambda *call: calls.append(call))
    assert calls[-1] == ("reading into the page cache", 1200, 1200)
    assert len(calls) < 19


@pytest.mark.timeout(30)
def test_an_interruption_does_not_wait_for_the_end_of_large_files() -> None:
    began = threading.Event()

    def act(chunk: Iterable[str], stop: threading.Event) -> None:
        began.set()
        if "first" not in chunk:
            assert stop.wait(20), "it is told to end"

    def interrupted(stage: str, done: int, total: int | None) -> None:
        assert began.wait(20)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        page_cache._for_all(["first", "second", "third"], act, "reading", interrupted)
