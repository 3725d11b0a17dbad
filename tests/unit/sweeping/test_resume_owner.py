"""A run folder whose resuming starts a command or imports a module has to be one's own."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from pipetune.errors import UsageError
from pipetune.sweeping import run as sweeping_run
from pipetune.sweeping.observer import SweepObserver
from pipetune.sweeping.script_run import resume_any


def folder(path: Path, **options: Any) -> Path:
    path.mkdir()
    path.chmod(0o700)
    (path / "run.json").write_text(json.dumps({"schema": 1, "kind": "sweep", "options": options}))
    (path / "outcomes.jsonl").touch()
    (path / "loader.json").write_text("{}")
    for name in ("run.json", "loader.json"):
        (path / name).chmod(0o600)
    return path


def refused(path: Path, name: str) -> None:
    with pytest.raises(UsageError, match=rf"others may have written to .*{name}, and its code would run"):
        resume_any(path, {}, SweepObserver())


def test_the_command_of_a_script(tmp_path: Path) -> None:
    path = folder(tmp_path / "run", dataset="script:t.py", command=["touch", str(tmp_path / "pwned")])
    (path / "run.json").chmod(0o666)
    refused(path, "run.json")
    if os.geteuid() == 0:
        (path / "run.json").chmod(0o600)
        os.chown(path / "run.json", 65534, 65534)
        with pytest.raises(UsageError, match=r"belongs to another user \(uid 65534\).*; start a sweep of your own"):
            resume_any(path, {}, SweepObserver())
    assert not (tmp_path / "pwned").exists()


def test_the_name_of_a_loader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Read:
        chosen = before = None

    monkeypatch.setattr(sweeping_run, "read_resumed", lambda path, given: Read)
    path = folder(tmp_path / "run", dataset="own:mine:make_loader")
    (path / "loader.json").chmod(0o666)
    refused(path, "loader.json")
