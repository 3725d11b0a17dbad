"""The JSON schema of run files, for editors: ``python -m pipetune.cli.run_file_schema`` writes it.

It is made from the command line, and committed; a test checks that it is up to date.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pipetune.cli.app import COMMANDS
from pipetune.cli.run_file import Option
from pipetune.cli.with_run_file import options_of

#: Beside the schemas of results.
FILE = Path(__file__).parents[1] / "report" / "run_file.schema.json"
_TYPES: dict[type, Any] = {str: ["string", "number"], int: "integer", float: "number", bool: "boolean"}


def schema() -> dict[str, Any]:
    """The schema of a run file."""
    tables = {name: options_of(command) for name, (command, _) in COMMANDS.items()}
    anywhere: dict[str, Any] = {}
    for options in tables.values():
        for name, option in options.items():
            value = _value(option)
            if anywhere.setdefault(name, value) != value:
                anywhere[name] = {"description": "Of several commands; see their tables."}
    of_commands = {
        name: {"type": "object", "description": f"Options of pipetune {name}.", "additionalProperties": False,
               "properties": {key: _value(option) for key, option in options.items()}}
        for name, options in tables.items()
    }  # fmt: skip
    for name in of_commands.keys() & anywhere.keys():  # an option has the name of a command
        of_commands[name] = {"anyOf": [of_commands[name], anywhere[name]]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Run file of pipetune: options of its commands",
        "description": "At the top or in a table with the name of the command. A list is a grid of runs.",
        "type": "object", "additionalProperties": False, "properties": {**anywhere, **of_commands},
    }  # fmt: skip


def _value(option: Option) -> dict[str, Any]:
    one = {"type": _TYPES[option.kind]}
    return {"description": option.help, "anyOf": [one, {"type": "array", "items": one, "minItems": 1}]}


def text() -> str:
    """The file's content."""
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
