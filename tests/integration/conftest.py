"""Fixtures of the tests that run real commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.integration import commands
from tests.photo_set import small_photos
from tests.shared_folder import shared_folder


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
    """No process of ours runs on when the test is over."""
    yield
    left = [process for process in psutil.Process().children(recursive=True) if "pipetune" in " ".join(_words(process))]
    assert left == []


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []
