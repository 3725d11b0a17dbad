"""Every command line in README, CONTRIBUTING and the manual is one that works."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from benchmarks.__main__ import choose
from pipetune.accelerator.parse_device import parse_device
from pipetune.candidates import varied
from pipetune.cli import app as faces
from pipetune.cli.app import app
from pipetune.datasets.synthetic_uri import SCHEME, parse_uri
from pipetune.registry import find_backend
from pipetune.sweeping import options as sweep_options
from pipetune.watching.options import WatchOptions
from pipetune.watching.prometheus import parse_address
from tests import ROOT
from tests.docs import pages
from tests.run_folders import sweep_folder

GROUP: Any = typer.main.get_command(app)
COMMANDS = [
    pytest.param(command, id=f"{name}: {' '.join(command)[:80]}")
    for path, name in zip(pages.PAGES, pages.IDS, strict=True)
    for command in pages.shell_commands(path)
]
OF_PIPETUNE = [one for one in COMMANDS if one.values[0][0] == "pipetune" and "COMMAND" not in one.values[0]]


def of(*names: str) -> list[Any]:
    """The command lines of these commands, with more than the command's name."""
    return [one for one in OF_PIPETUNE if one.values[0][1] in names and len(one.values[0]) > 2]


#: Words that stand for run folders.
RUNS = ("RUN", "RUN_A", "RUN_B", "pipetune-runs/20260131-184500-train", "old", "new")
#: Options of other programs, named in sentences.
FOREIGN = {
    "--cpuset-cpus",
    "--cpus",
    "--shm-size",
    "--gpus",
    "--pid",
    "--cap-add",
    "--exclusive",
    "--gpus-per-node",
    "--mail-type",
    "--total",  # of lease.sh
    "--only",
    "--plan",
    "--shorten",
    "--small",
    "--sm",  # of pack.sh
}


def parsed(command: list[str]) -> dict[str, Any]:
    """The values of a command line, by the name of the parameter; fails where an option does not exist."""
    name, *arguments = command[1:]
    values: dict[str, Any] = GROUP.commands[name].make_context(name, arguments).params
    return values


@pytest.fixture(autouse=True)
def manual_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The files that the manual shows and its command lines name."""
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "guides" / "run-files.md").read_text()
    (tmp_path / "imagenet.toml").write_text(text.partition("```toml\n")[2].partition("```")[0])


def test_there_are_commands() -> None:
    assert len(OF_PIPETUNE) > 40
    assert {one.values[0][1] for one in OF_PIPETUNE} == {*GROUP.commands}


@pytest.mark.parametrize("command", OF_PIPETUNE)
def test_its_options_exist(command: list[str]) -> None:
    parsed(command)


def given(monkeypatch: pytest.MonkeyPatch) -> list[sweep_options.SweepOptions]:
    """What a sweep is started with; nothing is measured."""
    found: list[sweep_options.SweepOptions] = []

    ended = SimpleNamespace(stopped=None, message=None)

    def start(chosen: sweep_options.SweepOptions, *_: object) -> object:
        found.append(chosen)
        return ended

    monkeypatch.setattr("pipetune.sweeping.script_run.start_any", start)
    monkeypatch.setattr("pipetune.sweeping.script_run.resume_any", lambda *_: ended)
    monkeypatch.setattr("pipetune.cli.sweep_batch.found_batch_size", lambda *_: 256)
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)  # --hosts auto
    monkeypatch.setattr("pipetune.cli.sweep_run.show", lambda *_, **__: 0)
    return found


@pytest.mark.parametrize("command", of("sweep"))
def test_values_of_a_sweep(command: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sweep_options, "require", lambda _: None)
    found = given(monkeypatch)
    values = parsed(command)
    arguments = command[1:]
    named = [values[name] for name in ("dataset", "resume", "loader", "command")]
    if not any(named) and not values["allow_writes"]:  # a sentence that names an option alone
        arguments += ["--dataset", "data"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, (done.output, done.exception)
    for chosen in found:
        sweep_options.check(chosen)
        if chosen.command:
            varied.settings(chosen.vary or (), chosen.fix, backends=("script",), on_gpu=True)
            continue
        parse_device(chosen.device, devices=8)
        varied.settings(chosen.vary, chosen.fix, backends=chosen.backends or ("pillow",), on_gpu=True)
        for backend in chosen.backends or ():
            find_backend(backend)
        if chosen.dataset.startswith(SCHEME):
            parse_uri(chosen.dataset)


@pytest.mark.parametrize("command", of("watch"))
def test_values_of_a_watch(command: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    found: list[WatchOptions] = []

    def watch(options: WatchOptions, *_: object) -> int:
        found.append(options)
        return 0

    monkeypatch.setattr("pipetune.watching.run.start_and_watch", watch)
    monkeypatch.setattr("pipetune.watching.run.watch_process", watch)
    monkeypatch.setattr("pipetune.watching.find.find_target", lambda *_: None)
    done = CliRunner().invoke(app, command[1:])
    assert done.exit_code == 0, (done.output, done.exception)
    assert len(found) == 1
    if found[0].prometheus is not None:
        parse_address(found[0].prometheus)


@pytest.mark.parametrize("command", of("report", "compare"))
def test_a_stored_run_is_shown(command: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in RUNS:
        if name in command:
            sweep_folder(tmp_path / name)
    done = CliRunner().invoke(app, command[1:])
    assert done.exit_code == 0, (done.output, done.exception)
    for option in ("--html", "--trace"):
        if option in command:
            assert (tmp_path / command[command.index(option) + 1]).stat().st_size > 1000


@pytest.mark.parametrize("command", [one for one in OF_PIPETUNE if one.values[0][1] == "doctor"])
def test_the_doctor(command: list[str]) -> None:
    install = parsed(command)["install"]
    if install is not None:
        assert find_backend(install).install == f"pipetune doctor --install {install}".replace("-fast", "")
        return
    done = CliRunner().invoke(app, command[1:])
    assert done.exit_code == 0
    assert "backends" in done.output


@pytest.mark.parametrize("command", [one for one in COMMANDS if one.values[0][0] == "pip"])
def test_extras_exist(command: list[str]) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert command[:2] == ["pip", "install"]
    for name in re.findall(r"[\w-]+", command[2].partition("[")[2]):
        assert name in extras


@pytest.mark.parametrize("command", [one for one in COMMANDS if one.values[0][0] == "make"])
def test_targets_exist(command: list[str]) -> None:
    assert re.search(rf"^{command[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


@pytest.mark.parametrize("command", [one for one in COMMANDS if one.values[0][:2] == ["python", "-m"]])
def test_modules_exist(command: list[str]) -> None:
    assert importlib.util.find_spec(command[2]) is not None


@pytest.mark.parametrize("command", [one for one in COMMANDS if one.values[0][:3] == ["python", "-m", "benchmarks"]])
def test_benchmarks_exist(command: list[str]) -> None:
    names = command[command.index("--only") + 1 :] if "--only" in command else None
    chosen, unknown = choose(names)
    assert chosen, unknown


@pytest.mark.parametrize("command", [one for one in COMMANDS if "pytest" in one.values[0]])
def test_tests_exist(command: list[str]) -> None:
    files = [word for word in command if word.startswith("tests/")]
    assert files
    assert all((ROOT / file).exists() for file in files)


@pytest.mark.parametrize("path", pages.PAGES, ids=pages.IDS)
def test_options_in_sentences_exist(path: Path) -> None:
    parameters = [one for command in GROUP.commands.values() for one in command.params]
    known = {option for one in parameters for option in (*one.opts, *one.secondary_opts)}
    for span in pages.spans(path):
        for option in re.findall(r"(?<![\w-])--[a-z][\w-]+", span):
            assert option in known | FOREIGN | {"--help"}, span


def test_every_command_has_a_section() -> None:
    text = (ROOT / "docs" / "reference" / "commands.md").read_text()
    assert {name for name in faces.COMMANDS if f"## pipetune {name}\n" not in text} == set()
    assert {name for name in faces.COMMANDS if f"<!-- generated: options {name} -->" not in text} == set()
