"""Folders that are missing, of others, or full of nonsense, with the real command; see ``test_faults.py``."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pipetune
from tests.integration import commands, limits
from tests.run_folders import sweep_folder

pytestmark = pytest.mark.slow

PIPETUNE = [sys.executable, "-P", "-m", "pipetune"]
SYNTHETIC = ("sweep", "--dataset", "synthetic:caltech256?n=40", "--device", "emulated:100")


def test_a_user_without_a_home_gets_a_check_up() -> None:
    done = commands.run(limits.without_a_home([*PIPETUNE, "doctor"]))
    assert (done.returncode, done.stderr) == (0, "")
    assert "jpeg-roi" in done.stdout


@pytest.mark.parametrize(
    ("command", "variable"),
    [
        (("doctor", "--install", "jpeg-roi"), "XDG_DATA_HOME"),
        (("doctor", "--install", "pillow-simd"), "XDG_DATA_HOME"),
        (SYNTHETIC, "PIPETUNE_CACHE_DIR"),
    ],
)
def test_a_user_without_a_home_is_asked_for_a_folder(command: tuple[str, ...], variable: str) -> None:
    done = commands.run(limits.without_a_home([*PIPETUNE, *command]))
    line = commands.failed_in_one_line(done, 2, "HOME is not set, and the system knows no user 12345")
    assert f"set {variable} to a folder that you may write to" in line


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    return sweep_folder(tmp_path / "run")


def edit(path: Path, change: Callable[[Any], None]) -> None:
    """Change a JSON file, or each line of one."""
    lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    found = [json.loads(line) for line in lines]
    for one in found:
        change(one)
    path.write_text("".join(json.dumps(one) + "\n" for one in found))


def without_interval(row: Any) -> None:
    row["measurement"]["ci95"] = None


def without_warnings(row: Any) -> None:
    row["measurement"]["warnings"] = None


@pytest.mark.parametrize(
    ("file", "change", "said"),
    [
        ("outcomes.jsonl", without_interval, "outcomes.jsonl line 1 was left out: measurement.ci95: expected array"),
        ("outcomes.jsonl", without_warnings, "outcomes.jsonl line 1 was left out: measurement.warnings: expected arr"),
        ("run.json", lambda run: run["host"].update(versions=True), "run.json: host.versions was left out: expected o"),
        ("run.json", lambda run: run.update(notes=7), "run.json: notes was left out: expected array, got int"),
        ("result.json", lambda result: result.update(seconds="x"), "result.json: seconds was left out: expected flo"),
    ],
)
def test_a_run_folder_with_values_of_other_types(
    sweep: Path, tmp_path: Path, file: str, change: Callable[[Any], None], said: str
) -> None:
    other = sweep_folder(tmp_path / "other")
    edit(sweep / file, change)
    assert any(problem.startswith(said) for problem in pipetune.load(sweep).problems)
    page = tmp_path / "page.html"
    for options in (("report", sweep), ("report", sweep, "--html", page), ("compare", other, sweep)):
        done = commands.run([*PIPETUNE, *map(str, options)])
        assert "internal error" not in done.stderr
        assert "Traceback" not in done.stderr
        if file != "outcomes.jsonl":  # else nothing is left that was measured
            assert done.returncode == 0, done.stderr


def test_code_of_somebody_elses_run_does_not_run(sweep: Path) -> None:
    evil = "224)\nimport os; os.system('id')  # "
    edit(sweep / "result.json", lambda result: result["workload"].update(image_size_px=evil))
    edit(sweep / "run.json", lambda run: run["workload"].update(image_size=evil))
    done = commands.run([*PIPETUNE, "report", str(sweep), "--html", "-"])
    assert "os.system" not in done.stdout.partition('id="data"')[0]
    assert "internal error" not in done.stderr


@pytest.mark.parametrize("name", ["run.json", "result.json", "outcomes.jsonl", "timelines/ceiling.jsonl"])
def test_a_named_pipe_in_a_run_folder_is_not_waited_for(sweep: Path, name: str) -> None:
    (sweep / name).unlink()
    os.mkfifo(sweep / name)
    done = commands.run(["timeout", "60", *PIPETUNE, "report", str(sweep), "--trace", "-"])
    commands.failed_in_one_line(done, 1, name, "not a regular file; put back what pipetune wrote there")


def test_files_without_an_end_in_a_run_folder_take_little_memory(sweep: Path) -> None:
    for name, size in (("outcomes.jsonl", 3 << 30), ("timelines/ceiling.jsonl", 1 << 28)):
        with (sweep / name).open("ab") as file:
            file.truncate(size)
    command = [*PIPETUNE, "report", str(sweep), "--trace", "-", "--candidate", "ceiling"]
    done = commands.run(["prlimit", f"--as={3 << 30}", *command])
    assert done.returncode == 0, done.stderr
    assert "outcomes.jsonl: it has more than 64 MiB, and the rest was left out" in done.stderr
    assert "ceiling.jsonl line 81 was left out: it was not written to its end" in done.stderr


@pytest.mark.parametrize("content", ["", "4242\n"])
def test_a_folder_with_another_programs_lock_is_left_alone(tmp_path: Path, content: str) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "lock").write_text(content)
    done = commands.run([*PIPETUNE, "watch", "--out", str(tmp_path / "out"), "--", "true"])
    commands.failed_in_one_line(done, 2, "is not empty; name a new folder")
    assert (tmp_path / "out" / "lock").read_text() == content
    assert os.listdir(tmp_path / "out") == ["lock"]
