from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from pipetune.cli.app import app
from pipetune.errors import UsageError
from pipetune.scaling.launch import LAUNCH_FILE


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a cluster file, whose python says what it is told to do."""
    fake = tmp_path / "python3"
    fake.write_text('#!/bin/bash\nprintf "%s\\n" "$*" >> "$PWD/ran"\nexit $((SLURM_ARRAY_TASK_ID))\n')
    fake.chmod(0o755)
    (tmp_path / "cluster.toml").write_text(f'partition = "gpu"\npython = "{fake}"\n')
    monkeypatch.chdir(tmp_path)
    return tmp_path


def launch(*words: str) -> Result:
    result = CliRunner().invoke(app, ["launch", *words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_the_scripts_are_printed_and_nothing_is_made(here: Path) -> None:
    result = launch(
        "--cluster", "cluster.toml", "--array", "ranks=1,2", "--out", "run", "--", "sweep", "--dataset", "/d"
    )
    assert result.exit_code == 0
    assert "# array.sh" in result.output
    assert "# collect.sh" in result.output
    assert "0) set -- sweep --ranks=1 --dataset /d ;;" in result.output
    assert not (here / "run").exists()


def test_tasks_run_here_and_go_on_where_they_were_interrupted(here: Path) -> None:
    words = ("--cluster", "cluster.toml", "--local", "--out", "run", "--array", "batch-size=8,16")
    script = ("--", "sweep", "--seed", "3", "--", "python", "train.py", "--epochs", "2")
    result = launch(*words, *script)
    assert result.exit_code == 1, "the second task's code"
    assert "task 1: it ended with exit code 1\n" in result.output
    first, second = (here / "ran").read_text().splitlines()
    assert first == f"-m pipetune sweep --out {here}/run/task-0 --batch-size=8 --seed 3 -- python train.py --epochs 2"
    assert "--batch-size=16" in second
    (here / "run" / "task-0").mkdir()
    (here / "run" / "task-0" / "run.json").write_text('{"schema": 1, "kind": "sweep"}')
    launch(*words, *script)
    assert (here / "ran").read_text().splitlines()[2] == f"-m pipetune sweep --resume {here}/run/task-0"


def test_what_has_come_of_an_array_is_shown_and_written(here: Path) -> None:
    launch("--cluster", "cluster.toml", "--local", "--out", "run", "--", "sweep", "--dataset", "/d")
    result = launch("--collect", "run", "--json", "-")
    assert [task["status"] for task in json.loads(result.output)["tasks"]] == ["failed"]
    assert (here / "run" / LAUNCH_FILE).exists()
    assert launch("--collect", "run").exit_code == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "no cluster was named"),
        (("--cluster", "cluster.toml"), "cannot be launched"),
        (("--cluster", "cluster.toml", "--submit", "--local", "--", "sweep"), "cannot be combined"),
        (("--cluster", "cluster.toml", "--json", "x.json", "--", "sweep"), "--json is for --collect"),
        (("--collect", ".", "--submit"), "omit the other options"),
        (("--collect", "."), "has no launch.json"),
        (("--cluster", "cluster.toml", "--array", "rank=1", "--", "sweep"), "did you mean 'ranks'"),
    ],
)
def test_what_cannot_be_is_named(here: Path, words: tuple[str, ...], said: str) -> None:
    with pytest.raises(UsageError) as raised:
        launch(*words)
    assert said in str(raised.value)
