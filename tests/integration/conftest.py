"""Fixtures of the tests that run real commands."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.integration import commands
from tests.photo_set import small_photos


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixty small photographs in two classes."""
    return small_photos(tmp_path_factory.mktemp("photos") / "set", copies=15)


@pytest.fixture(scope="session")
def half(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a sweep that has measured its ceiling and the default: see ``commands.gone_on``."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "half"
    folder.mkdir(exist_ok=True)
    with open(folder / "lock", "w") as lock:  # the second process of pytest-xdist finds it measured
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "run" / "result.json").exists():
            commands.swept(photos, folder / "run", "--workers", "0")
    return folder / "run"


@pytest.fixture
def nobody_is_left() -> Iterator[None]:
    """No process of ours runs on when the test is over."""
    yield
    left = [process for process in psutil.Process().children(recursive=True) if "pipetune" in " ".join(_words(process))]
    assert left == []


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []
