from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipetune.machine import limits
from pipetune.machine.cgroup import group_folders, memory_limit_bytes
from pipetune.machine.limits import CannotLimitError, disk_of, limited_memory, limited_storage


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Control groups that are plain folders: what is written to them can be read again."""
    own = tmp_path / "own"
    own.mkdir()
    (own / "cgroup.procs").write_text("")
    monkeypatch.setattr(limits, "group_folders", lambda name: (own,) if name != "" else ())
    monkeypatch.setattr(limits, "_GONE_S", 0.0)
    return own


def test_a_group_is_made_joined_and_left(group: Path) -> None:
    with limited_memory(2**30):
        made = next(place for place in group.iterdir() if place.is_dir())
        assert made.name.startswith(f"pipetune-limit-{os.getpid()}")
        assert (made / "memory.limit_in_bytes").read_text() == str(2**30)
        assert (made / "cgroup.procs").read_text() == str(os.getpid())
    assert (group / "cgroup.procs").read_text() == str(os.getpid())


def test_a_limit_of_nothing_is_not_written_as_no_limit(group: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "disk_of", lambda folder: "8:0")
    with limited_storage(Path("/photos"), 0.3, 0.5):
        made = next(place for place in group.iterdir() if place.is_dir())
        assert (made / "blkio.throttle.read_bps_device").read_text() == "8:0 1"
        assert (made / "blkio.throttle.read_iops_device").read_text() == "8:0 1"


def test_what_a_killed_process_left_is_removed(group: Path) -> None:
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    left = group / f"pipetune-limit-{int(gone.stdout)}-memory"
    left.mkdir()
    alive = group / f"pipetune-limit-{os.getppid()}-memory"
    alive.mkdir()
    with limited_memory(2**30):
        assert not left.exists()
        assert alive.exists()


def test_in_version_2_the_group_is_made_where_the_controller_is_handed_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    (tmp_path / "outer" / "cgroup.subtree_control").write_text("cpu memory\n")
    (inner / "cgroup.subtree_control").write_text("\n")
    monkeypatch.setattr(limits, "group_folders", lambda name: (inner, inner.parent) if name == "" else ())
    monkeypatch.setattr(limits, "_GONE_S", 0.0)
    with limited_memory(2**30):
        made = next((tmp_path / "outer").glob("pipetune-limit-*"))
        assert (made / "memory.max").read_text() == str(2**30)
    assert (inner / "cgroup.procs").read_text() == str(os.getpid())
    with pytest.raises(CannotLimitError, match="limit io"), limits._joined("blkio", {}, "io", {}):
        pytest.fail("there is no such controller")


def test_in_version_2_one_group_has_both_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / f"pipetune-limit-{os.getpid()}-io"
    own.mkdir()
    monkeypatch.setattr(limits, "group_folders", lambda name: (own, tmp_path) if name == "" else ())
    with limited_memory(2**30):
        assert (own / "memory.max").read_text() == str(2**30)
    assert not (own / "cgroup.procs").exists(), "it has joined already, and the outer one leaves"


def test_without_control_groups_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "group_folders", lambda name: ())
    with pytest.raises(CannotLimitError, match="no control groups"), limited_memory(2**30):
        pytest.fail("nothing is limited")


def test_a_folder_that_is_gone_or_on_no_disk_is_named(tmp_path: Path) -> None:
    with pytest.raises(CannotLimitError, match="gone"):
        disk_of(tmp_path / "gone")
    with pytest.raises(CannotLimitError, match="no disk of its own"):
        disk_of(Path("/proc"))


def test_real_groups_limit_memory_and_are_gone_afterwards() -> None:
    before = memory_limit_bytes()
    levels = group_folders("memory") or group_folders("")
    try:
        with limited_memory(2**30):
            assert memory_limit_bytes() == min(2**30, before or 2**30)
    except CannotLimitError as reason:
        pytest.skip(f"no control group can be made here: {reason}")
    assert memory_limit_bytes() == before
    assert not [place for level in levels for place in level.glob(f"pipetune-limit-{os.getpid()}-*")]


def test_real_groups_slow_a_disk_down(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(os.urandom(1 << 22))
    try:
        with limited_storage(tmp_path, 4e6, None):
            with file.open("rb") as opened:
                os.fsync(opened.fileno())
                os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            began = time.monotonic()
            file.read_bytes()
            took = time.monotonic() - began
    except CannotLimitError as reason:
        pytest.skip(f"no control group can be made here: {reason}")
    assert took > 0.4  # a second at 4 MB/s, less what the first slice lets through
