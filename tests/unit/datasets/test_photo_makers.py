from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pipetune.datasets import photo_makers
from pipetune.datasets.photo_like import PROFILES, make_jpeg
from pipetune.datasets.photo_makers import MIN_FOR_PROCESSES, PhotoJob, make_photos
from pipetune.errors import PipetuneError

COUNT = MIN_FOR_PROCESSES


def job(folder: Path, count: int = COUNT, classes: int = 3) -> PhotoJob:
    folder.mkdir(exist_ok=True)
    return PhotoJob(folder=str(folder), profile="caltech256", seed=1, count=count, classes=classes)


def quiet(stage: str, done: int, total: int | None) -> None:
    pass


def children_of(pid: int) -> list[int]:
    """Processes whose parent is ``pid``."""
    found = []
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if name.isdigit() and int(Path("/proc", name, "stat").read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(name))
    return found


def until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*.jpg")}


@pytest.mark.thorough
def test_several_processes_make_the_same_images(tmp_path: Path) -> None:
    calls: list[tuple[str, int, int | None]] = []
    make_photos(job(tmp_path / "two"), workers=2, progress=lambda *call: calls.append(call))
    make_photos(job(tmp_path / "one"), workers=1, progress=quiet)
    assert contents(tmp_path / "two") == contents(tmp_path / "one")
    assert len(contents(tmp_path / "two")) == COUNT
    assert (tmp_path / "one/class-1/0000004.jpg").read_bytes() == make_jpeg(PROFILES["caltech256"], 1, 4)
    assert (calls[0][1:], calls[-1][1:]) == ((0, COUNT), (COUNT, COUNT))
    assert [done for _, done, _ in calls] == sorted(done for _, done, _ in calls)
    assert children_of(os.getpid()) == []


@pytest.mark.thorough
def test_makers_import_nothing_from_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('shadowed')\n")
    monkeypatch.chdir(tmp_path)
    make_photos(job(tmp_path / "two"), workers=2, progress=quiet)
    assert len(contents(tmp_path / "two")) == COUNT


def test_names_of_classes_sort_as_their_labels(tmp_path: Path) -> None:
    make_photos(job(tmp_path / "a", count=11, classes=11), workers=1, progress=quiet)
    assert sorted(os.listdir(tmp_path / "a")) == [f"class-{label:02}" for label in range(11)]


@pytest.mark.thorough
def test_a_file_that_cannot_be_written_is_an_os_error(tmp_path: Path) -> None:
    def block(stage: str, done: int, total: int | None) -> None:
        (tmp_path / "a/class-1/0000007.jpg").mkdir(exist_ok=True)

    with pytest.raises(IsADirectoryError):
        make_photos(job(tmp_path / "a"), workers=2, progress=block)
    assert children_of(os.getpid()) == []


@pytest.mark.thorough
def test_a_killed_maker_is_reported(tmp_path: Path) -> None:
    def kill(stage: str, done: int, total: int | None) -> None:
        if done:
            os.kill(children_of(os.getpid())[0], signal.SIGKILL)

    with pytest.raises(PipetuneError, match="ended by SIGKILL; use fewer workers"):
        make_photos(job(tmp_path / "a"), workers=2, progress=kill)
    assert children_of(os.getpid()) == []


def test_the_last_line_of_a_dead_maker_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(photo_makers, "_PROGRAM", "print('hm', flush=True); raise ValueError('boom')")
    with pytest.raises(PipetuneError, match="exit code 1: ValueError: boom"):
        make_photos(job(tmp_path / "a"), workers=2, progress=quiet)


def test_an_interrupt_ends_the_makers(tmp_path: Path) -> None:
    def interrupt(stage: str, done: int, total: int | None) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_photos(job(tmp_path / "a"), workers=2, progress=interrupt)
    assert children_of(os.getpid()) == []


@pytest.mark.thorough
def test_makers_do_not_outlive_a_killed_parent(tmp_path: Path) -> None:
    job(tmp_path / "a")
    program = (
        "from pipetune.datasets.photo_makers import PhotoJob, make_photos\n"
        f"job = PhotoJob(folder={str(tmp_path / 'a')!r}, profile='caltech256', seed=0, count=10**6, classes=1)\n"
        "make_photos(job, workers=2, progress=lambda *call: None)\n"
    )
    # No guard around the call: a maker must not run its parent's program.
    script = tmp_path / "script.py"
    script.write_text(program)
    path = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    parent = subprocess.Popen([sys.executable, str(script)], env=path)
    until(lambda: len(contents(tmp_path / "a")) > 10)
    makers = children_of(parent.pid)
    parent.kill()
    parent.wait()
    assert len(makers) == 2
    until(lambda: not any(Path("/proc", str(maker)).exists() for maker in makers))
