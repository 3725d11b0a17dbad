from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import pytest

from pipetune.store.regular import TooLargeError, open_regular, read_lines, read_whole


def test_a_file_is_read_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for content in (b"", b"x", b"line\n" * 1000):
        path.write_bytes(content)
        assert read_whole(path) == content
        assert b"".join(line or b"" for line in read_lines(path)) == content


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")  # which would be waited for
    open_files = len(os.listdir("/proc/self/fd"))
    for path, reason in ((tmp_path / "fifo", "not a regular file"), (Path("/dev/zero"), "not a regular file"),
                         (tmp_path, "Is a directory"), (tmp_path / "none", "No such file")):  # fmt: skip
        with pytest.raises(OSError, match=reason):
            open_regular(path)
    assert len(os.listdir("/proc/self/fd")) == open_files


def test_a_large_file_is_refused_without_reading_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(TooLargeError, match="it has more than 64 MiB"):
        read_whole(path, most_bytes=64 << 20)
    path.write_bytes(b"12345")
    assert read_whole(path, most_bytes=5) == b"12345"
    with pytest.raises(TooLargeError):
        read_whole(path, most_bytes=4)


def test_a_line_that_is_too_long_is_passed_over_in_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("wb") as file:
        file.write(b"first\n")
        for _ in range(64):
            file.write(b"x" * (1 << 20))
        file.write(b"\nlast\nno end")
    tracemalloc.start()
    try:
        assert list(read_lines(path, most_line_bytes=1 << 20)) == [b"first\n", None, b"last\n", b"no end"]
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("content", [b"ab\n" * 10, b"x" * 30])
def test_what_is_behind_the_limit_is_left_out(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    lines, found = read_lines(path, most_line_bytes=8, most_bytes=10), []
    with pytest.raises(TooLargeError, match="the rest was left out"):
        found += lines
    assert b"".join(line or b"" for line in found) == content[:9] * (content[2:3] == b"\n")
