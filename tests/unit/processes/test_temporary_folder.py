from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from pipetune.processes.temporary_folder import prefix_of_folders, remove, remove_abandoned, temporary_folder

HOLD = """
import sys, time
from pipetune.processes.temporary_folder import temporary_folder
with temporary_folder("held") as folder:
    (folder / "something").write_text("x")
    print(folder, flush=True)
    time.sleep(600)
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def test_it_is_there_while_the_block_runs(place: Path) -> None:
    with temporary_folder("rates") as folder:
        assert folder.parent == place
        assert "-rates-" in folder.name
        assert str(folder).startswith(prefix_of_folders())
        (folder / "file").write_text("x")
    assert list(place.iterdir()) == []


def test_what_a_killed_process_has_left_goes_and_what_another_uses_stays(place: Path) -> None:
    processes = [subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    folders = []
    try:
        for process in processes:
            assert process.stdout is not None
            folders.append(Path(process.stdout.readline().strip()))
        processes[0].send_signal(signal.SIGKILL)
        processes[0].wait(timeout=30)
        assert folders[0].exists()
        with temporary_folder("rates"):
            assert not folders[0].exists()
            assert (folders[1] / "something").exists()
    finally:
        for process in processes:
            process.kill()
            process.communicate(timeout=30)
    remove_abandoned()
    assert list(place.iterdir()) == []


def test_what_is_not_ours_stays(place: Path) -> None:
    (place / "pipetune-script-1").mkdir()  # without an owner
    (place / "pipetune-file").write_text("x")
    (place / "elsewhere").mkdir()
    (place / "elsewhere" / ".owner").write_text("")
    (place / "pipetune-link").symlink_to(place / "elsewhere")
    (place / "pipetune-linked-owner").mkdir()
    (place / "pipetune-linked-owner" / ".owner").symlink_to(place / "pipetune-file")
    before = sorted(os.listdir(place))
    remove_abandoned()
    assert sorted(os.listdir(place)) == before


def test_a_temporary_folder_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/no/such/folder")
    remove_abandoned()


def test_what_nobody_may_enter_goes_and_what_a_link_leads_to_keeps_its_permissions(place: Path) -> None:
    users = place / "users"
    users.mkdir(mode=0o755)
    with temporary_folder("script") as folder:
        (folder / "layers" / "work").mkdir(parents=True, mode=0)  # as overlayfs leaves it
        (folder / "train").symlink_to(users)
    assert not folder.exists()
    assert users.stat().st_mode & 0o777 == 0o755
    remove(folder)  # it is gone already
