"""Fixtures of the tests that run real commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.photo_set import small_photos


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixty small photographs in two classes."""
    return small_photos(tmp_path_factory.mktemp("photos") / "set", copies=15)


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
