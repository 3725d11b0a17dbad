"""Fixtures of the tests that run real commands."""

from __future__ import annotations

import contextlib
import ctypes
import os
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.integration import commands
from tests.photo_set import small_photos
from tests.shared_folder import shared_folder

#: linux/prctl.h
_PR_SET_CHILD_SUBREAPER = 36
#: A process that has been killed has ended within this time, on a busy machine too (s).
_KILLED_WITHIN_S = 5.0


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The folder in which a training script is started."""
    folder = tmp_path / "place"
    folder.mkdir()
    return folder


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixty small photographs in two classes, in a folder whose name is to be shown as it is."""
    return small_photos(tmp_path_factory.mktemp("photos") / "<script>alert(1)<", copies=15)


@pytest.fixture(scope="session")
def half(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a sweep that has measured its ceiling and the default, which feeds the accelerator.

    What it said lies beside it, in ``stdout`` and ``stderr``. A test goes on with it: see ``commands.gone_on``.
    """
    with shared_folder(tmp_path_factory, "half") as folder:
        if not (folder / "run" / "result.json").exists():
            done = commands.run(commands.sweep_command(photos, folder / "run", "--json", str(folder / "result.json")))
            assert done.returncode == 0, done.stderr
            (folder / "stderr").write_text(done.stderr)
            (folder / "stdout").write_text(done.stdout)
    return folder / "run"


@pytest.fixture(scope="session")
def starved(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep for an accelerator that no loader can feed: its folder ``run``, and what it wrote to ``stderr``."""
    with shared_folder(tmp_path_factory, "starved") as folder:
        if not (folder / "stderr").exists():
            # Steps long enough that Python keeps up with them: otherwise the ceiling is not steady, and measured twice.
            done = commands.run(
                commands.sweep_command(photos, folder / "run", "--device", "emulated:6e4", "--batch-size", "16")
            )
            assert done.returncode == 0, done.stderr
            (folder / "stderr").write_text(done.stderr + done.stdout)
    return folder


@pytest.fixture
def nobody_is_left() -> Iterator[None]:
    """No process that the test has started, whoever its parent was, runs on when the test is over."""
    before = set(_running())
    # What a command leaves behind becomes a child of this process instead of the system's first one.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
    deadline = time.monotonic() + _KILLED_WITHIN_S
    while (left := _running() - before) and time.monotonic() < deadline:
        time.sleep(0.05)
    _forget_the_ended()
    assert left == set()


def _forget_the_ended() -> None:
    """Nobody else waits for processes that have become children of this one."""
    for process in psutil.Process().children():
        with contextlib.suppress(psutil.Error, ChildProcessError):
            if process.status() == psutil.STATUS_ZOMBIE:
                os.waitpid(process.pid, os.WNOHANG)


def _running() -> set[psutil.Process]:
    """The processes below this one that have not ended."""
    found = set()
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE:
                found.add(process)
    return found
