from __future__ import annotations

import os
from pathlib import Path

import pytest

from pipetune.store.ownership import everything_in, take_from_others, why_foreign


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "code.so"
    made.touch()
    made.chmod(0o755)
    return made


@pytest.mark.parametrize("mode", [0o755, 0o700, 0o444])
def test_what_only_this_user_can_write_is_ours(file: Path, mode: int) -> None:
    file.chmod(mode)
    assert why_foreign([file]) is None


@pytest.mark.parametrize("mode", [0o775, 0o777, 0o702, 0o1777])
def test_what_others_can_write_is_not(file: Path, mode: int) -> None:
    file.chmod(mode)
    assert why_foreign([file]) == f"others may write to {file} (mode {mode:04o})"


def test_what_belongs_to_root_is_ours_and_what_is_missing_harmless(tmp_path: Path) -> None:
    assert why_foreign([Path("/usr/bin/env"), tmp_path / "absent"]) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_belongs_to_somebody_else_is_not(file: Path) -> None:
    os.chown(file, 65534, 65534)
    assert why_foreign([file]) == f"{file} belongs to another user (uid 65534)"


def test_of_a_link_its_target_counts(file: Path) -> None:
    link = file.with_name("link.so")
    link.symlink_to(file)
    assert why_foreign([link]) is None
    file.chmod(0o777)
    assert why_foreign([link]) == f"others may write to {link} (mode 0777)"


def test_others_lose_the_right_to_write_and_keep_that_to_read(tmp_path: Path) -> None:
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    (below / "file").touch()
    (below / "link").symlink_to("/dev/null")
    for path in (tmp_path / "a", below, below / "file"):
        path.chmod(0o777)
    take_from_others(everything_in(tmp_path / "a"))
    assert [path.stat().st_mode & 0o777 for path in (tmp_path / "a", below, below / "file")] == [0o755] * 3
    assert set(everything_in(tmp_path / "a")) == {tmp_path / "a", below, below / "file", below / "link"}
