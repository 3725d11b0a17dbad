from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipetune.sampler.stacks.activity import Frame
from pipetune.sampler.stacks.source import source_line

TRAIN = Frame("f", "train.py", 1, "/train.py")


def test_a_line_is_looked_up_in_the_processs_own_root(tmp_path: Path) -> None:
    # As in a container: what is called /app/train.py there is another file, or none, here.
    (tmp_path / "5/root/app").mkdir(parents=True)
    (tmp_path / "5/cwd").mkdir()
    (tmp_path / "5/root/app/train.py").write_text("one\ntwo\n")
    (tmp_path / "5/cwd/local.py").write_text("three\n")
    line_of = source_line(5, str(tmp_path))

    assert line_of(Frame("f", "train.py", 2, "/app/train.py")) == "two\n"
    assert line_of(Frame("f", "local.py", 1, "local.py")) == "three\n"


@pytest.mark.parametrize(
    ("line", "path"), [(0, "/app/train.py"), (9, "/app/train.py"), (1, "<string>"), (1, "/absent.py"), (-1, "/app/x")]
)
def test_a_line_that_cannot_be_had_is_empty(tmp_path: Path, line: int, path: str) -> None:
    (tmp_path / "5/root/app").mkdir(parents=True)
    (tmp_path / "5/root/app/train.py").write_text("one\ntwo\n")

    assert source_line(5, str(tmp_path))(Frame("f", "train.py", line, path)) == ""


def test_a_file_that_is_no_text_is_read_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "5/root").mkdir(parents=True)
    (tmp_path / "5/root/train.py").write_bytes(b"\xff\xfe = open(path)\n")

    assert "open(path)" in source_line(5, str(tmp_path))(Frame("f", "train.py", 1, "/train.py"))


def test_a_line_follows_the_file_when_it_is_edited(tmp_path: Path) -> None:
    (tmp_path / "5/root").mkdir(parents=True)
    line_of, path = source_line(5, str(tmp_path)), tmp_path / "5/root/train.py"
    path.write_text("one\n")
    before = line_of(TRAIN)
    path.write_text("another\n")

    assert (before, line_of(TRAIN)) == ("one\n", "another\n")


def _asked(folder: Path) -> str:
    """The line of a frame, asked for in a process of its own: one that hangs or eats memory is ended."""
    code = (
        "import resource, sys; from pipetune.sampler.stacks.source import source_line; "
        "from pipetune.sampler.stacks.activity import Frame; "
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30)); "
        "print(repr(source_line(5, sys.argv[1])(Frame('f', 'train.py', 1, '/train.py'))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=False, timeout=60
    )
    return done.stdout.strip() + done.stderr.strip()


def test_a_pipe_that_a_frame_names_does_not_block(tmp_path: Path) -> None:
    (tmp_path / "5/root").mkdir(parents=True)
    os.mkfifo(tmp_path / "5/root/train.py")

    assert _asked(tmp_path) == "''"


@pytest.mark.parametrize("target", ["/dev/zero", "/proc/self/pagemap", "/proc/self/status", "/"])
def test_what_is_no_plain_file_with_an_end_is_not_read(tmp_path: Path, target: str) -> None:
    (tmp_path / "5/root").mkdir(parents=True)
    (tmp_path / "5/root/train.py").symlink_to(target)

    assert _asked(tmp_path) == "''"


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "5/root").mkdir(parents=True)
    with (tmp_path / "5/root/train.py").open("wb") as file:
        file.write(b"one\n")
        file.truncate(1 << 40)

    assert _asked(tmp_path) == "''"
