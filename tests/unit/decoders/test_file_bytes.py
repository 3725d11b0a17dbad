from __future__ import annotations

import os
from pathlib import Path

import pytest

from pipetune.decoders import file_bytes
from pipetune.decoders.file_bytes import read_file


def test_files_of_any_size_are_read_whole_into_the_same_memory(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for size in (10_000, 0, 1, 9_999, 30_000, 5):
        path.write_bytes(bytes(n % 251 for n in range(size)))
        assert bytes(read_file(str(path))) == path.read_bytes()
    first = read_file(str(path))
    second = read_file(str(path))
    assert first.obj is second.obj


def test_a_very_large_file_gets_memory_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_bytes, "_MAX_KEPT", 1000)
    path = tmp_path / "file"
    path.write_bytes(b"x" * 5000)
    assert read_file(str(path)).obj is not read_file(str(path)).obj


def test_what_says_nothing_of_its_size_is_read_to_its_end() -> None:
    assert bytes(read_file("/proc/self/status")).startswith(b"Name:")


def test_one_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_file(str(tmp_path / "none"))


@pytest.mark.parametrize("size", [None, 10], ids=["a file", "a part of one"])
def test_a_named_pipe_is_refused_and_not_waited_for(tmp_path: Path, size: int | None) -> None:
    os.mkfifo(tmp_path / "pipe")
    before = os.listdir("/proc/self/fd")
    with pytest.raises(OSError, match="not a regular file"):
        read_file(str(tmp_path / "pipe"), 0, size)
    assert os.listdir("/proc/self/fd") == before
