"""Run files: the options of a command in a TOML file, for ``--config``; ``--save-config`` writes one.

Each option stands under its own name, at the top or in a table with the name of the command. What is given on the
command line wins. A list of values for an option that takes one value is a grid: all combinations run, one after the
other.
"""

from __future__ import annotations

import difflib
import itertools
import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipetune.errors import UsageError

_LONGEST_LABEL = 200
#: A grid of more runs than this is a mistake.
MOST_RUNS = 1000
#: Options that say where the options come from and go to.
OWN = ("config", "save_config")


@dataclass(frozen=True, slots=True)
class Option:
    """What a command takes."""

    name: str
    """As the command line has it, without dashes in front: ``batch-size``."""
    field: str
    """Name of the parameter: ``batch_size``."""
    kind: type
    """``str``, ``int``, ``float`` or ``bool``; paths are text."""
    many: bool = False
    """It takes a list."""
    help: str = ""
    argument: bool = False
    """It has no dashes on the command line."""


def read_run_file(path: Path, command: str, options: Mapping[str, Option], commands: tuple[str, ...]) -> dict[str, Any]:
    """Parameter -> the value, or a list of values of which each is a run.

    Args:
        command: for which the file is read.
        options: that it takes, by their names.
        commands: names of all commands, which tables may have; empty: they are not known.

    Raises:
        UsageError: it cannot be read, has a key that the command does not know, or a value of another kind.
    """
    try:
        with path.open("rb") as file:
            content = tomllib.load(file)
    except OSError as error:
        raise UsageError(f"cannot read --config {path}: {error.strerror}", hint="pipetune COMMAND … --save-config FILE "
                         "writes one") from error  # fmt: skip
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path} is not valid TOML: {error}", hint="see https://toml.io, or let --save-config write one"
        ) from None
    found: dict[str, Any] = {}
    table = content.get(command)
    own = table.items() if isinstance(table, dict) else ()
    for key, value in (*_at_the_top(path, content, commands), *own):
        name = key.replace("_", "-")
        if name not in options:
            raise UsageError(f"{path}: pipetune {command} has no option {key!r}", hint=_nearest(name, options))
        found[options[name].field] = _checked(path, key, value, options[name])
    return found


def _at_the_top(path: Path, content: Mapping[str, Any], commands: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    for key, value in content.items():
        if not isinstance(value, dict):
            yield key, value
        elif commands and key not in commands:
            near = difflib.get_close_matches(key, commands, 1, 0.5)
            raise UsageError(
                f"{path}: there is no command {key!r}, for which [{key}] would be",
                hint=f"did you mean [{near[0]}]?" if near else f"there are {', '.join(commands)}",
            )


def _nearest(name: str, options: Mapping[str, Option]) -> str:
    near = difflib.get_close_matches(name, options, 1, 0.5)
    return f"did you mean {near[0]!r}?" if near else f"it has {', '.join(sorted(options))}"


def _checked(path: Path, key: str, value: Any, option: Option) -> Any:
    """The value as the parameter has it; of a grid all of them.

    Raises:
        UsageError: it is of another kind.
    """
    if option.many:
        if not isinstance(value, list):
            value = [value]
        return [_scalar(path, key, one, option) for one in value]
    if isinstance(value, list):
        if not value:
            raise UsageError(f"{path}: {key} = [] is a grid of no runs", hint="name values, or omit it")
        return Grid(tuple(_scalar(path, key, one, option) for one in value))
    return _scalar(path, key, value, option)


def _scalar(path: Path, key: str, value: Any, option: Option) -> Any:
    kind = option.kind
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind is str and isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)  # --ranks 4 is text on the command line, too
    if isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
        return value
    words = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}
    raise UsageError(f"{path}: {key} = {json.dumps(value, default=str)} is not {words[kind]}",
                     hint=f"see pipetune COMMAND --help for --{option.name}")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Grid:
    """Values of an option, each of which is a run."""

    values: tuple[Any, ...]


def runs_of(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The combinations of a grid, in the order of the file; each has the values in which runs differ.

    Raises:
        UsageError: there are too many.
    """
    axes = {field: value.values for field, value in values.items() if isinstance(value, Grid)}
    count = 1
    for found in axes.values():
        count *= len(found)
    if count > MOST_RUNS:
        raise UsageError(f"the lists in the run file make a grid of {count:,} runs",
                         hint=f"name fewer values: {MOST_RUNS:,} runs are the most")  # fmt: skip
    return [dict(zip(axes, combination, strict=True)) for combination in itertools.product(*axes.values())]


def labels_of(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Each run of a grid as the name of a folder, which no other has: ``model=resnet18,batch-size=64``."""
    found: list[str] = []
    for number, values in enumerate(runs, 1):
        words = ",".join(f"{name.replace('_', '-')}={value}" for name, value in values.items())
        label = "".join(c if (c.isalnum() and c.isascii()) or c in "=,.-_" else "-" for c in words)[:_LONGEST_LABEL]
        found.append(f"{label},{number}" if label in found else label)
    return found


def as_toml(command: str, values: Mapping[str, Any], options: Mapping[str, Option]) -> str:
    """A run file with these values, by their parameters."""
    names = {option.field: name for name, option in options.items()}
    lines = [f"[{command}]", *(f"{names[field]} = {_toml(value)}" for field, value in values.items())]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, (int, float)):
        return repr(value)  # inf and nan, too
    # JSON's strings are TOML's, but for surrogate pairs, which it does not know, and DEL, which it wants escaped.
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
