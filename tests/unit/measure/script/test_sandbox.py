"""The command that runs a script in a layer over its folder, and where that is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipetune.errors import UsageError
from pipetune.measure.script import sandbox


def test_the_command_stands_last_and_as_it_is(tmp_path: Path) -> None:
    words = sandbox.in_sandbox(["python", "train.py", "a b"], tmp_path / "job", tmp_path / "layers")
    assert words[0] == "unshare"
    assert words[-3:] == ["python", "train.py", "a b"]
    assert words[-4] == str(tmp_path / "job")
    assert (tmp_path / "layers" / "upper").is_dir()
    assert (tmp_path / "layers" / "work").is_dir()


@pytest.mark.parametrize(("uid", "own_namespace"), [(0, False), (1000, True)])
def test_who_is_not_root_gets_a_user_namespace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uid: int, own_namespace: bool
) -> None:
    monkeypatch.setattr(sandbox.os, "geteuid", lambda: uid)
    words = sandbox.in_sandbox(["true"], tmp_path, tmp_path / "layers")
    assert ("--user" in words) is own_namespace


@pytest.mark.parametrize("name", ["a,b", "a:b", "a\\b"])
def test_a_path_that_overlayfs_cannot_take_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="overlayfs takes no"):
        sandbox.require_sandbox(tmp_path / name, tmp_path / "layers")


def test_a_system_without_unshare_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox.shutil, "which", lambda _: None)
    with pytest.raises(UsageError, match="unshare"):
        sandbox.require_sandbox(tmp_path, tmp_path / "layers")


def test_a_system_that_forbids_it_is_refused_with_its_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "in_sandbox", lambda *_: ["sh", "-c", "echo 'not permitted' >&2; exit 1"])
    with pytest.raises(UsageError, match="not permitted"):
        sandbox.require_sandbox(tmp_path, tmp_path / "layers")
