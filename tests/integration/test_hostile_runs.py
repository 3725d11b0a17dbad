"""Runs of strangers, with escape sequences and formulas in every text: nothing of it reaches the terminal."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipetune.__main__ import main
from pipetune.records.sweep import Failure
from tests.fakes import outcome
from tests.run_folders import CEILING, DEFAULT, TIMED, sweep_folder, watch_folder
from tests.watch_fakes import stall, verdict, window

HOSTILE = "=1+1\x1b]0;PWNED\x07\x1b[31m\x9b2J\r\u202e"
#: Texts that are anything; others are names with a meaning, and a run with other ones cannot be read.
FREE = (
    "message", "hint", "why", "name", "root", "source", "model", "hostname", "cpu_model", "kernel", "title", "found",
    "sentence", "advice", "reason", "pipetune", "started", "command", "job_command", "warnings", "notes", "evidence",
    "missing", "versions", "stderr_tail", "ended_because", "other_process",
)  # fmt: skip

Call = Callable[..., str]


@pytest.fixture
def call(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    """Calls the command in this process, and returns all that it has printed."""

    def run(*arguments: object) -> str:
        capfd.readouterr()
        monkeypatch.setattr(sys, "argv", ["pipetune", *map(str, arguments)])
        with pytest.raises(SystemExit):
            main()
        return "".join(capfd.readouterr())

    return run


def hostile(value: Any, free: bool = False) -> Any:
    if isinstance(value, dict):
        return {name: hostile(inner, free or name in FREE) for name, inner in value.items()}
    if isinstance(value, list):
        return [hostile(inner, free) for inner in value]
    return HOSTILE + value if free and isinstance(value, str) else value


def poison(folder: Path) -> Path:
    for path in folder.glob("*.json*"):
        lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
        poisoned = [{**hostile(json.loads(line)), f"of a newer version {HOSTILE}": HOSTILE} for line in lines]
        path.write_text("".join(json.dumps(line) + "\n" for line in poisoned))
    return folder


@pytest.fixture
def sweeps(tmp_path: Path) -> tuple[Path, Path]:
    broken = outcome("dali", 1, failure=Failure(kind="crashed", phase="open", message="m", hint="h"))
    warned = outcome("opencv", 2, rate=1240.0, **TIMED)
    assert warned.measurement is not None
    warned = replace(warned, measurement=replace(warned.measurement, warnings=("w",)))
    first = sweep_folder(tmp_path / "a", [CEILING, DEFAULT, warned, broken])
    second = sweep_folder(tmp_path / "b", [CEILING, DEFAULT, outcome("opencv", 2, rate=900.0, **TIMED)])
    return poison(first), poison(second)


@pytest.fixture
def watches(tmp_path: Path) -> tuple[Path, Path]:
    found = verdict(sentence="s", advice="a", evidence=("e",), missing=("m",))
    made = [watch_folder(tmp_path / name, [window(verdicts=(found,), notes=("n",))], [stall()]) for name in "cd"]
    return poison(made[0]), poison(made[1])


def is_plain(text: str) -> bool:
    return all(line.isprintable() for line in text.split("\n"))


@pytest.mark.parametrize("options", [(), ("--markdown",), ("--csv",)])
def test_a_report(sweeps: tuple[Path, Path], watches: tuple[Path, Path], options: tuple[str, ...], call: Call) -> None:
    for run in (*sweeps, *watches):
        shown = call("report", run, *options)
        assert "internal error" not in shown
        assert len(shown) > 100
        assert is_plain(shown)
        for row in csv.reader(io.StringIO(shown)) if options == ("--csv",) else ():
            assert not any(cell.startswith(("=", "@", "+")) for cell in row)


def test_a_comparison(sweeps: tuple[Path, Path], watches: tuple[Path, Path], call: Call) -> None:
    for runs in (sweeps, watches):
        shown = call("compare", *runs, "--fail-if-worse")
        assert "internal error" not in shown
        assert len(shown) > 100
        assert is_plain(shown)


def test_an_error(tmp_path: Path, call: Call) -> None:
    for arguments in (("report", tmp_path / HOSTILE), ("sweep", "--dataset", HOSTILE), ("compare", HOSTILE, HOSTILE)):
        assert is_plain(call(*arguments))
