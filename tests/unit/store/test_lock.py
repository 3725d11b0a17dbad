from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pipetune.store.lock import LockedError, locked, try_lock


@contextmanager
def held(target: Path) -> Iterator[int]:
    fd, alone = try_lock(target)
    assert alone
    try:
        yield fd
    finally:
        os.close(fd)


def test_only_one_has_a_lock_and_says_who_it_is(tmp_path: Path) -> None:
    target = tmp_path / "lock"
    with held(target) as fd:
        os.write(fd, b"4711\n")
        with pytest.raises(LockedError) as caught:
            try_lock(target)
    assert caught.value.holder == "4711"
    with held(target):
        pass
    assert target.exists()


def test_a_process_that_dies_gives_its_lock_back(tmp_path: Path) -> None:
    target = tmp_path / "lock"
    code = (
        "import sys, pathlib, os; from pipetune.store.lock import try_lock; "
        "try_lock(pathlib.Path(sys.argv[1])); os._exit(9)"
    )
    subprocess.run(
        [sys.executable, "-c", code, str(target)],
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    with held(target):
        pass


def test_one_waits_for_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipetune.store.lock._POLL_S", 0.001)
    target = tmp_path / "lock"
    other, _ = try_lock(target)
    waited: list[float] = []

    def waiting(waited_s: float) -> None:
        waited.append(waited_s)
        if len(waited) == 3:
            os.close(other)

    with locked(target, waiting) as alone:
        assert alone
        with pytest.raises(LockedError):
            try_lock(target)
    assert waited[0] == 0 < waited[1] < waited[2]
    with held(target):
        pass


def test_whatever_ends_the_block_gives_the_lock_back(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), locked(tmp_path / "lock", lambda waited_s: None):
        raise KeyboardInterrupt
    with held(tmp_path / "lock"):
        pass


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_used_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def no_locks(fd: int, how: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with locked(tmp_path / "lock", lambda waited_s: None) as alone:
        assert not alone


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    open_files = len(os.listdir("/proc/self/fd"))
    with pytest.raises(FileNotFoundError):
        try_lock(tmp_path / "nowhere" / "lock")
    with pytest.raises(IsADirectoryError):
        try_lock(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == open_files


def test_another_error_closes_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(fd: int, how: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(fcntl, "flock", broken)
    open_files = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="Input/output"):
        try_lock(tmp_path / "lock")
    assert len(os.listdir("/proc/self/fd")) == open_files
