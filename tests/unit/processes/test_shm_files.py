from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipetune.processes.shm_files import FD_VARIABLE, announce_worker, read_announced, remove_files_of, remove_own_files


def test_who_announces_itself_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read_fd, write_fd = os.pipe()
    assert read_announced(read_fd) == set()
    monkeypatch.setenv(FD_VARIABLE, str(write_fd))
    announce_worker()
    announce_worker()
    assert read_announced(read_fd) == {os.getpid()}
    os.close(write_fd)
    announce_worker()  # nobody listens any more
    assert read_announced(read_fd) == set()
    os.close(read_fd)


def test_outside_of_a_measurement_nothing_is_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FD_VARIABLE, raising=False)
    announce_worker()


@pytest.mark.thorough
def test_only_files_of_workers_that_have_ended_are_removed(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", "pass"])
    ended.wait()
    alive = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    names = {f"torch_{ended.pid}_12_3", f"torch_{alive.pid}_12_3", "torch_1_12_3", "torch_x", f"sem.{ended.pid}"}
    for name in names:
        (tmp_path / name).write_text("")
    try:
        removed = remove_files_of({ended.pid, alive.pid}, tmp_path)
    finally:
        alive.communicate(b"\n")
    assert removed == [f"torch_{ended.pid}_12_3"]
    assert set(os.listdir(tmp_path)) == names - {*removed}


def test_files_of_an_unreaped_worker_are_removed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "pass"], stdout=subprocess.PIPE) as ended:
        assert ended.stdout is not None
        ended.stdout.read()  # its end closes the pipe: from now on it is a zombie
        (tmp_path / f"torch_{ended.pid}_12_3").touch()
        assert remove_files_of({ended.pid}, tmp_path) == [f"torch_{ended.pid}_12_3"]


@pytest.mark.thorough
def test_without_shared_memory_there_is_nothing_to_remove(tmp_path: Path) -> None:
    assert remove_files_of({1}, tmp_path / "none") == []


def test_a_worker_removes_its_own_files(tmp_path: Path) -> None:
    for name in (f"torch_{os.getpid()}_1_2", "torch_1_2_3", "other"):
        (tmp_path / name).touch()
    remove_own_files(tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["other", "torch_1_2_3"]
    remove_own_files(tmp_path / "none")
