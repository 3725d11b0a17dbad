"""Environments of their own for readers that do not go with what the tests need; made once, kept in the virtual one."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

_FOLDER = Path(sys.prefix) / "readers"


def python_with(name: str, *packages: str, imports: str) -> str:
    """An interpreter that has these packages; the test is skipped, with the reason, where they do not install.

    Args:
        name: of the environment.
        imports: a module that has to be there then.
    """
    place = _FOLDER / name
    python = place / "bin" / "python"
    _FOLDER.mkdir(exist_ok=True)
    with (_FOLDER / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "ready").exists():
            for command in (
                [sys.executable, "-m", "venv", str(place)],
                [str(python), "-m", "pip", "install", "--quiet", "--only-binary", ":all:", *packages],
                [str(python), "-c", f"import {imports}"],
            ):
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode:
                    reason = (done.stderr.strip().splitlines() or ["nothing was said"])[-1]
                    pytest.skip(f"{name} does not install here: {reason}")
            (place / "ready").touch()
    return str(python)
