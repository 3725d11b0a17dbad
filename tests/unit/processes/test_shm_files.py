from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipetune.processes.shm_files import FD_VARIABLE, announce_worker, read_announced, remove_files_of, remove_own_files


def test_who_announces_itself_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read_fd, write_fd = os.pipe()
    assert read_announced(read_fd) == {}
    monkeypatch.setenv(FD_VARIABLE, str(write_fd))
    before_ns = time.time_ns()
    announce_worker()
    after_ns = time.time_ns()
    announce_worker()
    os.write(write_fd, b"what is no announcement\n")
    announced = read_announced(read_fd)
    assert list(announced) == [os.getpid()]
    assert before_ns <= announced[os.getpid()] <= after_ns
    os.close(write_fd)
    announce_worker()  # nobody listens any more
    assert read_announced(read_fd) == {}
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
        removed = remove_files_of({ended.pid: 0, alive.pid: 0}, tmp_path)
    finally:
        alive.communicate(b"\n")
    assert removed == [f"torch_{ended.pid}_12_3"]
    assert set(os.listdir(tmp_path)) == names - {*removed}


def test_files_of_an_unreaped_worker_are_removed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "pass"], stdout=subprocess.PIPE) as ended:
        assert ended.stdout is not None
        ended.stdout.read()  # its end closes the pipe: from now on it is a zombie
        (tmp_path / f"torch_{ended.pid}_12_3").touch()
        assert remove_files_of({ended.pid: 0}, tmp_path) == [f"torch_{ended.pid}_12_3"]


@pytest.mark.thorough
def test_without_shared_memory_there_is_nothing_to_remove(tmp_path: Path) -> None:
    assert remove_files_of({1: 0}, tmp_path / "none") == []


@pytest.fixture
def ended() -> int:
    """PID of a process that has ended."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_another_containers_file_from_before_the_worker_is_kept(tmp_path: Path, ended: int) -> None:
    """Containers that share /dev/shm number their processes on their own."""
    theirs, left = tmp_path / f"torch_{ended}_1_1", tmp_path / f"torch_{ended}_2_2"
    theirs.touch()
    os.utime(theirs, ns=(0, time.time_ns() - 10**9))
    began_ns = time.time_ns()
    left.touch()
    assert remove_files_of({ended: began_ns}, tmp_path) == [left.name]
    assert theirs.exists()


def test_another_users_file_is_kept(tmp_path: Path, ended: int) -> None:
    if os.geteuid():
        pytest.skip("only root can give a file to another user")
    theirs = tmp_path / f"torch_{ended}_1_1"
    theirs.touch()
    os.chown(theirs, 65534, 65534)
    assert remove_files_of({ended: 0}, tmp_path) == []
    assert theirs.exists()


def test_what_is_no_file_is_kept(tmp_path: Path, ended: int) -> None:
    (tmp_path / f"torch_{ended}_1_1").symlink_to("elsewhere")
    assert remove_files_of({ended: 0}, tmp_path) == []


def test_a_worker_removes_its_own_files(tmp_path: Path) -> None:
    mine, before = f"torch_{os.getpid()}_1_2", f"torch_{os.getpid()}_0_0"
    for name in (mine, before, "torch_1_2_3", "other"):
        (tmp_path / name).touch()
    os.utime(tmp_path / before, ns=(0, time.time_ns() - 10**9))
    remove_own_files(time.time_ns(), tmp_path)
    assert sorted(os.listdir(tmp_path)) == sorted([before, "other", "torch_1_2_3"])
    remove_own_files(0, tmp_path / "none")
