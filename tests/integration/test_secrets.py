"""What a job or a script was started with is stored without its secrets, in files that only this user may read."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.integration import commands
from tests.integration.own_scripts import LOOP, TRAINING, sweep, write

SECRET = "s3cret-of-mine"


def readable_by_others(folder: Path) -> list[Path]:
    return [path for path in (folder, *folder.rglob("*")) if path.stat().st_mode & 0o077]


def holding_the_secret(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes())


def test_a_watched_job(place: Path) -> None:
    job = [sys.executable, "-c", "import time; time.sleep(1)", "--api-key", SECRET, f"HF_TOKEN={SECRET}", "--lr", "0.1"]
    options = ["--no-stacks", "--out", str(place / "run"), "--log", str(place / "log")]
    done = commands.run([*commands.python(), "watch", *options, "--", *job])
    assert done.returncode == 0, done.stderr
    assert SECRET not in done.stdout + done.stderr
    assert holding_the_secret(place) == []
    assert readable_by_others(place / "run") == []
    assert (place / "log").stat().st_mode & 0o077 == 0
    stored = json.loads((place / "run" / "run.json").read_text())["job_command"]
    assert stored[-5:] == ["--api-key", "***", "HF_TOKEN=***", "--lr", "0.1"]


@pytest.mark.slow
def test_a_script_that_is_tuned(place: Path, nobody_is_left: None) -> None:
    command = write(place, TRAINING.format(before="import time", loop=LOOP))
    whole = [*command, "--token", SECRET]
    done = sweep(place, whole, "--workers", "0", "--blocks", "0", "--json", "result.json", seconds="0.3")
    assert done.returncode in (0, 1), done.stderr
    assert (place / "run" / "result.json").exists(), done.stderr
    assert SECRET not in done.stdout + done.stderr
    assert holding_the_secret(place) == ["run.json"], "which --resume starts it from"
    assert json.loads((place / "run" / "run.json").read_text())["options"]["command"] == whole
    assert readable_by_others(place / "run") == []
    assert json.loads((place / "result.json").read_text())["script"]["command"][-2:] == ["--token", "***"]
    for option in ((), ("--markdown",), ("--csv",), ("--html", "-")):
        shown = commands.run([*commands.python(), "report", str(place / "run"), *option])
        assert shown.returncode == 0, shown.stderr
        assert SECRET not in shown.stdout + shown.stderr
    assert os.listdir(place / "run")
