from __future__ import annotations

import os
import sys

import pytest

from pipetune.install import pip
from pipetune.install.pip import cause_of, run_pip, unreachable
from tests.forks import state_of

RETRY = (
    "WARNING: Retrying (Retry(total=0, connect=None)) after connection broken by 'NewConnectionError('<HTTP>: "
    "Failed to establish a new connection: [Errno 111] Connection refused')': /pillow-simd/"
)
OFFLINE = f"""Looking in indexes: http://127.0.0.1:9/
{RETRY}
ERROR: Could not find a version that satisfies the requirement pillow-simd==12.1.1.post0 (from versions: none)
ERROR: No matching distribution found for pillow-simd==12.1.1.post0
"""
COMPILE = """  error: subprocess-exited-with-error
  × Building wheel for pillow-simd (pyproject.toml) did not run successfully.
      src/libImaging/Jpeg.h:13:10: fatal error: jconfig.h: No such file or directory
      error: command '/usr/bin/cc' failed with exit code 1
      [end of output]
  note: This error originates from a subprocess, and is likely not a problem with pip.
ERROR: Could not build wheels for pillow-simd, which is required to install pyproject.toml-based projects
"""


@pytest.mark.parametrize(
    ("output", "cause"),
    [
        (COMPILE, "src/libImaging/Jpeg.h:13:10: fatal error: jconfig.h: No such file or directory"),
        (OFFLINE, RETRY[RETRY.index("connection broken") :]),
        (OFFLINE + COMPILE, "src/libImaging/Jpeg.h:13:10: fatal error: jconfig.h: No such file or directory"),
        ("/usr/bin/ld: cannot find -ljpeg\ncollect2: error: ld returned 1\n", "/usr/bin/ld: cannot find -ljpeg"),
        ("\n  something\n  else  again \n\n", "else again"),
        ("", "it printed nothing"),
    ],
)
def test_the_line_that_names_the_cause(output: str, cause: str) -> None:
    assert cause_of(output) == cause


def test_a_cause_is_one_line_of_bearable_length() -> None:
    assert len(cause_of("x.c: error: " + "long " * 1000)) <= 300


def test_whether_the_index_was_reached() -> None:
    assert unreachable(OFFLINE)
    assert not unreachable(COMPILE)


def test_pip_runs_in_this_python_with_its_output_and_exit_status() -> None:
    pytest.importorskip("pip", reason="a virtual environment may have no pip")
    code, output = run_pip(["--version"], os.environ)
    assert code == 0
    assert f"python {sys.version_info.major}.{sys.version_info.minor}" in output
    assert run_pip(["no-such-command"], os.environ)[0] != 0


@pytest.mark.parametrize(("program", "code"), [("print('built')", 0), ("print('built'); exit(3)", 3)])
def test_its_group_is_ended_while_its_number_is_nobody_elses(
    program: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[str | None] = []
    end = os.killpg

    def note(pid: int, number: int) -> None:
        kept.append(state_of(pid))
        end(pid, number)

    monkeypatch.setattr(os, "killpg", note)
    monkeypatch.setattr(pip, "_PIP", program)
    assert run_pip([], os.environ) == (code, "built\n")
    assert kept == ["Z"]
