"""Tables of a command's options, read from the command line itself."""

from __future__ import annotations

import re
from typing import Any

import typer

from docs.parts.markdown import code, table
from pipetune.cli.app import app

_DEFAULT = re.compile(r"\s*\[default: (?P<value>[^\]]*)\]")
_REQUIRED = "[required]"
#: How typer writes the kind of a value, and how it is written here.
_KINDS = {" <str>": " TEXT", " <int>": " N", " <float>": " NUMBER", " <path>": " PATH", " <list[str]>": "",
          " <list[Path]>": ""}  # fmt: skip


def command(name: str) -> Any:
    """The command as typer builds it.

    Raises:
        KeyError: there is none of that name.
    """
    group: Any = typer.main.get_command(app)
    return group.commands[name]


def options(name: str) -> str:
    """Every argument and option of a command, with its default, as its own help has them."""
    found = command(name)
    context = found.make_context(name, [], resilient_parsing=True)
    records = [parameter.get_help_record(context) for parameter in found.params if parameter.name != "help"]
    return table(["", "meaning", "default"], [_row(*record) for record in records if record])


def _row(names: str, text: str) -> list[str]:
    default = _DEFAULT.search(text)
    meaning = _DEFAULT.sub("", text).replace(_REQUIRED, "").strip()
    for kind, word in _KINDS.items():
        names = names.replace(kind, word)
    return [code(names), meaning, _value(default["value"]) if default else ""]


def _value(text: str) -> str:
    """A value as code, but not what is said in words."""
    return text if " " in text else code(text)
