from __future__ import annotations

import io
import os
import subprocess
import sys
from typing import Any

import pytest

from pipetune.cli.streams import LineWriter, Lossy, give_up


def test_a_stream_that_refuses_loses_its_text_and_nothing_else() -> None:
    with open("/dev/full", "w") as full:
        lossy: Any = Lossy(full)
        assert lossy.write("x" * 100_000) == 100_000
        lossy.flush()
        assert lossy.name == "/dev/full"
        give_up(full)
    closed = io.StringIO()
    closed.close()
    Lossy(closed).write("x")
    give_up(closed)


def test_lines_arrive_in_their_order() -> None:
    reader, end = os.pipe()
    with os.fdopen(end, "w", encoding="ascii") as stream:
        writer = LineWriter(stream)
        for number in range(50):
            writer.say(f"line {number} ±")
        writer.close()
        writer.close()
    with os.fdopen(reader) as file:
        assert file.read().splitlines() == [f"line {number} \\xb1" for number in range(50)]
    assert writer.lost == 0


def test_a_reader_that_does_not_read_delays_nobody() -> None:
    reader, end = os.pipe()
    with os.fdopen(end, "w") as stream:
        writer = LineWriter(stream)
        for _ in range(300):  # if it did, this would not end
            writer.say("x" * 4096)
        assert writer.lost > 0
        writer.close()  # does not wait for it for ever
        os.close(reader)  # the thread's write ends with an error


def test_a_stream_without_a_descriptor() -> None:
    stream = io.StringIO()
    writer = LineWriter(stream)
    writer.say("x")
    writer.close()
    assert stream.getvalue() == "x\n"


CLOSED = """
import os, subprocess, sys
from pipetune.cli.streams import open_missing
open_missing()
with open(sys.argv[1], "w") as file:
    subprocess.run([sys.executable, "-c", "import sys; print('out'); print('aside', file=sys.stderr)"])
    file.write(str(file.fileno()))
print("to nobody")
print("to nobody", file=sys.stderr)
sys.stdin.read()
"""


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)], ids=str)
def test_no_file_takes_the_place_of_a_closed_stream(closed: tuple[int, ...], tmp_path: Any) -> None:
    shut = " ".join(f"{fd}{'<' if fd == 0 else '>'}&-" for fd in closed)
    script = tmp_path / "script.py"
    script.write_text(CLOSED)
    done = subprocess.run(
        ["sh", "-c", f"exec {sys.executable} {script} {tmp_path}/file {shut}"], stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert int((tmp_path / "file").read_text()) > 2
