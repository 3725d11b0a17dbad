from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from pipetune.cli.app import COMMANDS, app
from pipetune.cli.with_run_file import options_of, was_given, with_run_file
from pipetune.errors import UsageError

CALLS: list[dict[str, Any]] = []


def train(
    context: typer.Context,
    source: Annotated[str, typer.Argument()],
    command: Annotated[list[str] | None, typer.Argument()] = None,
    batch_size: Annotated[int, typer.Option(help="Samples.")] = 64,
    model: Annotated[str, typer.Option()] = "resnet50",
    out: Annotated[Path | None, typer.Option()] = None,
    json_file: Annotated[str | None, typer.Option("--json")] = None,
    exact: Annotated[bool, typer.Option("--exact")] = False,
    resume: Annotated[bool, typer.Option("--resume")] = False,
) -> None:
    """Train."""
    given = sorted(name for name in ("source", "batch_size", "model") if was_given(context, name))
    CALLS.append({"source": source, "command": command, "batch_size": batch_size, "model": model, "out": out,
                  "exact": exact, "given": given})  # fmt: skip
    if model == "locked":
        raise PermissionError(13, "Permission denied", str(out))
    if model == "bad":
        raise UsageError("no such model")
    if model == "stopped":
        raise typer.Exit(143)
    if model == "slow":
        raise typer.Exit(3)


def other(cores: Annotated[str, typer.Option()] = "") -> None:
    """Something else."""


APP = typer.Typer(rich_markup_mode=None)
APP.command("train")(with_run_file(train, grid=True))
APP.command("other")(with_run_file(other))


def run(*words: str) -> tuple[int, list[dict[str, Any]], str]:
    CALLS.clear()
    result = CliRunner().invoke(APP, ["train", *words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, list(CALLS), result.output


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "run.toml"
    found.write_text('[train]\nsource = "/data"\nbatch-size = 32\nexact = true\nout = "here"\n[other]\ncores = "4"\n')
    return found


def test_options_and_arguments_come_from_the_file_and_the_command_line_wins(file: Path) -> None:
    code, (call,), _ = run("--config", str(file), "--batch-size", "8")
    assert code == 0
    assert call == {"source": "/data", "command": None, "batch_size": 8, "model": "resnet50", "out": Path("here"),
                    "exact": True, "given": ["batch_size", "source"]}  # fmt: skip


def test_the_file_may_be_named_anywhere(file: Path) -> None:
    _, (call,), _ = run("--batch-size", "8", "--config", str(file))
    assert (call["batch_size"], call["source"]) == (8, "/data")


def test_without_a_file_all_is_as_before() -> None:
    assert run("x", "y", "z")[1][0]["command"] == ["y", "z"]
    assert run()[0] == 2


def test_lists_are_a_grid_of_runs_and_the_first_that_fails_gives_the_exit_code(file: Path) -> None:
    file.write_text('source = "/d"\nout = "here"\nmodel = ["a", "slow", "bad"]\nbatch-size = [1, 2]\n')
    code, calls, output = run("--config", str(file))
    assert [(call["model"], call["batch_size"]) for call in calls] == [
        (model, size) for model in ("a", "slow", "bad") for size in (1, 2)
    ]
    assert code == 3
    assert "run 6 of 6: model=bad,batch-size=2" in output
    assert output.count("pipetune: no such model") == 2
    assert calls[0]["out"] == Path("here/model=a,batch-size=1")
    _, calls, _ = run("--config", str(file), "--model", "b")
    assert [call["batch_size"] for call in calls] == [1, 2], "what is given holds for all"
    with pytest.raises(UsageError, match="is one file"):
        run("--config", str(file), "--json", "x.json")


def test_what_the_system_refuses_one_run_does_not_end_the_others(file: Path) -> None:
    file.write_text('source = "/d"\nout = "here"\nmodel = ["locked", "a"]\n')
    code, calls, output = run("--config", str(file), "--resume")  # no run folder: it goes on in the folder of each
    assert (code, [call["model"] for call in calls]) == (1, ["locked", "a"])
    assert "pipetune: here/model=locked: Permission denied" in output


def test_what_is_given_is_written_and_nothing_runs(file: Path, tmp_path: Path) -> None:
    file.write_text('model = ["a", "b"]\n')
    target = tmp_path / "saved.toml"
    code, calls, output = run("--config", str(file), "/data", "--exact", "--save-config", str(target))
    assert (code, calls) == (0, [])
    assert target.read_text() == '[train]\nsource = "/data"\nmodel = ["a", "b"]\nexact = true\n'
    assert str(target) in output
    assert len(run("--config", str(target))[1]) == 2
    with pytest.raises(UsageError, match="is there already"):
        run("/data", "--save-config", str(target))


def test_help_names_both() -> None:
    output = run("--help")[2]
    assert "--config FILE" in output
    assert "--save-config FILE" in output
    assert "Train." in output


def test_lists_for_what_takes_a_list_come_from_the_file(file: Path) -> None:
    file.write_text('source = "/d"\ncommand = ["python", "train.py"]\n')
    assert run("--config", str(file))[1][0]["command"] == ["python", "train.py"]
    assert run("--config", str(file), "/x", "other.py")[1][0]["command"] == ["other.py"]


def test_a_run_that_was_stopped_is_the_last(file: Path) -> None:
    file.write_text('source = "/d"\nmodel = ["a", "stopped", "b"]\n')
    code, calls, _ = run("--config", str(file))
    assert (code, len(calls)) == (143, 2)


def test_a_command_that_runs_once_refuses_lists(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text('[other]\ncores = ["1", "2"]\n')
    result = CliRunner().invoke(APP, ["other", "--config", str(file)])
    assert isinstance(result.exception, UsageError)
    assert "cores has a list of values" in str(result.exception)


def test_zero_is_a_value(tmp_path: Path) -> None:
    target = tmp_path / "saved.toml"
    run("/data", "--batch-size", "0", "--save-config", str(target))
    assert "batch-size = 0" in target.read_text()
    again = tmp_path / "again.toml"
    run("--config", str(target), "--save-config", str(again))
    assert again.read_text() == target.read_text()


def test_what_is_saved_is_for_its_owner(tmp_path: Path) -> None:
    target = tmp_path / "saved.toml"
    run("/data", "--save-config", str(target), "--", "python", "--api-key", "x")
    assert target.stat().st_mode & 0o077 == 0
    with pytest.raises(UsageError, match="not UTF-8"):
        run("/data", "--model", "\udcff", "--save-config", str(tmp_path / "other.toml"))
    assert not (tmp_path / "other.toml").exists()


@pytest.mark.parametrize("name", COMMANDS)
def test_options_have_the_names_of_the_command_line(name: str) -> None:
    group: Any = typer.main.get_command(app)
    found = set()
    for parameter in group.commands[name].params:
        words = [word for word in parameter.opts if word.startswith("--")]
        found.add(words[0].removeprefix("--") if words else parameter.name.replace("_", "-"))
    assert set(options_of(COMMANDS[name][0])) == found - {"help", "config", "save-config"}
