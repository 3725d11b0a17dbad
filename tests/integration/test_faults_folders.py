"""Folders that are missing, of others, or full of nonsense, with the real command; see ``test_faults.py``."""

from __future__ import annotations

import sys

import pytest

from tests.integration import commands, limits

PIPETUNE = [sys.executable, "-P", "-m", "pipetune"]
SYNTHETIC = ("sweep", "--dataset", "synthetic:caltech256?n=40", "--device", "emulated:100")


def test_a_user_without_a_home_gets_a_check_up() -> None:
    done = commands.run(limits.without_a_home([*PIPETUNE, "doctor"]))
    assert (done.returncode, done.stderr) == (0, "")
    assert "jpeg-roi" in done.stdout


@pytest.mark.parametrize(
    ("command", "variable"),
    [
        (("doctor", "--install", "jpeg-roi"), "XDG_DATA_HOME"),
        (("doctor", "--install", "pillow-simd"), "XDG_DATA_HOME"),
        (SYNTHETIC, "PIPETUNE_CACHE_DIR"),
    ],
)
def test_a_user_without_a_home_is_asked_for_a_folder(command: tuple[str, ...], variable: str) -> None:
    done = commands.run(limits.without_a_home([*PIPETUNE, *command]))
    line = commands.failed_in_one_line(done, 2, "HOME is not set, and the system knows no user 12345")
    assert f"set {variable} to a folder that you may write to" in line
