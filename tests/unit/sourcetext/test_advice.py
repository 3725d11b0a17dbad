"""What is said of odd scripts is done, and the loader has the other value afterwards.

Each script of ``odd_scripts.txt`` is started, is asked about, is changed as the answer says, and is started again. The
file states the answer, too: a line that is named, or ``-`` where the text does not tell which line counts.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pipetune.records.script import ScriptLoader, SettingOrigin, SourceCall
from pipetune.sourcetext.command_options import set_option
from pipetune.sourcetext.settings import option_for, origins_for
from tests.unit.sourcetext.traced import ROOT

SCRIPTS = Path(__file__).parent / "odd_scripts.txt"
#: Takes the place of torch; the loader that shuffles is the one that is trained on.
LOADER = """
import json, os, sys
from pipetune.hook.describe import describe_calls, site_of

class DataLoader:
    def __init__(self, dataset=None, batch_size=1, shuffle=None, sampler=None, batch_sampler=None, num_workers=0, **_):
        if shuffle:
            site = site_of(sys._getframe(1))
            print("@" + json.dumps({"calls": describe_calls(site), "num_workers": num_workers}), flush=True)
            os._exit(0)
"""


@dataclass(frozen=True)
class OddScript:
    command: str = "train.py"
    environment: dict[str, str] = field(default_factory=dict)
    place: str | None = None
    """FILE:LINE that is named; ``None``: only the loader's call is."""
    option: str | None = None
    """The command with the script's own option, for three workers more than it has."""
    files: dict[str, str] = field(default_factory=dict)


def read_scripts() -> dict[str, OddScript]:
    scripts = {}
    for section in SCRIPTS.read_text(encoding="utf-8").split("==== ")[1:]:
        head, *parts = section.split("---- ")
        name, *lines = head.splitlines()
        said = dict(line.split(": ", 1) for line in lines)
        scripts[name] = OddScript(
            command=said["command"],
            environment=dict(word.split("=", 1) for word in said.get("environment", "").split()),
            place=None if said["place"] == "-" else said["place"],
            option=None if said["option"] == "-" else said["option"],
            files=dict(part.split("\n", 1) for part in parts),
        )
    return scripts


ODD_SCRIPTS = read_scripts()


def start(folder: Path, command: str, environment: dict[str, str]) -> dict[str, Any]:
    """The calls that led to the loader, and its number of workers."""
    paths = f"{folder.parent / 'stand-in'}:{ROOT}:{folder}"
    done = subprocess.run(
        [sys.executable, *command.split()], cwd=folder, env={**os.environ, **environment, "PYTHONPATH": paths},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    told = [line for line in done.stdout.splitlines() if line.startswith("@")]
    assert told, done.stderr
    answer: dict[str, Any] = json.loads(told[0][1:])
    return answer


def edit(origin: SettingOrigin, value: int) -> None:
    """Write another value where an answer says that the present one is written."""
    file = Path(origin.file)
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    line = lines[origin.line - 1]
    left, right = line.index(origin.name) + len(origin.name) if origin.name in line else 0, None
    if file.suffix == ".py":
        places = [
            (node.col_offset, node.end_col_offset)
            for node in ast.walk(ast.parse("".join(lines)))
            if isinstance(node, ast.expr) and node.lineno == origin.line and ast.unparse(node) == origin.text
        ]
        left, right = places[0]
        lines[origin.line - 1] = f"{line[:left]}{value}{line[right:]}"
    else:
        lines[origin.line - 1] = line[:left] + line[left:].replace(origin.text, str(value), 1)
    file.write_text("".join(lines), encoding="utf-8")


@pytest.mark.parametrize("name", ODD_SCRIPTS)
def test_what_is_said_changes_the_setting(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = ODD_SCRIPTS[name]
    folder = tmp_path / "job"
    stand_in = tmp_path / "stand-in" / "torch" / "utils" / "data"
    stand_in.mkdir(parents=True)
    for package in (stand_in.parent.parent, stand_in.parent):
        (package / "__init__.py").touch()
    (stand_in / "__init__.py").write_text(LOADER, encoding="utf-8")
    for file, text in script.files.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text, encoding="utf-8")
    monkeypatch.chdir(folder)
    for variable, value in script.environment.items():
        monkeypatch.setenv(variable, value)
    told = start(folder, script.command, script.environment)
    calls = tuple(
        SourceCall(file=call["file"], span=tuple(call["span"]), direct=call["direct"]) for call in told["calls"]
    )
    loader = ScriptLoader(
        identity=None, where="", calls=calls, settings={"num_workers": told["num_workers"]}
    )  # fmt: skip
    words = ["python", *script.command.split()]
    origin = origins_for(loader, words).get("num_workers")
    option = option_for(loader, "num_workers", words)
    other = told["num_workers"] + 3
    changed = None if option is None else set_option(option, words, other)
    named = None if origin is None else f"{Path(origin.file).relative_to(folder)}:{origin.line}"
    assert (named, None if changed is None else " ".join(changed[1:])) == (script.place, script.option)
    if changed is not None:
        assert start(folder, " ".join(changed[1:]), script.environment)["num_workers"] == other
    if origin is not None:
        edit(origin, other)
        assert start(folder, script.command, script.environment)["num_workers"] == other
