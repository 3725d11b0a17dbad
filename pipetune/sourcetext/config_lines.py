"""The lines of a configuration file with the whole key of each: YAML, JSON, TOML, and dictionaries in Python."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pipetune.sourcetext.scope import parse_file

#: How names of configuration files end, without Python's.
CONFIG_ENDINGS = (".yaml", ".yml", ".json", ".toml")
#: Larger files are tables and not configurations (bytes).
_MAX_BYTES = 200_000
_LINE = re.compile(
    r"""^(?P<indent>\s*(?:-\s+)*)(?P<quote>["']?)(?P<key>[\w.-]+)(?P=quote)\s*[:=]\s*(?P<text>[^#]*?)\s*,?\s*(?:\#.*)?$"""
)
_TABLE = re.compile(r"^\s*\[+\s*(?P<keys>[\w.\s\"'-]+?)\s*\]+\s*(?:#.*)?$")


@dataclass(frozen=True, slots=True)
class ConfigLine:
    """A line that gives a key its value."""

    line: int
    """From 1."""
    keys: tuple[str, ...]
    """The whole key, from the top of the file."""
    text: str
    """The value as written; empty where other keys stand below."""


def list_config_lines(place: Path) -> list[ConfigLine]:
    """Lines with a key, in their order; none of a file that is large or cannot be read."""
    if place.suffix == ".py":
        tree = parse_file(str(place))
        return [] if tree is None else list(_list_python(tree))
    try:
        if place.stat().st_size > _MAX_BYTES:
            return []
        lines = place.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    return list(_list_tables(lines) if place.suffix == ".toml" else _list_indented(lines))


def _list_indented(lines: list[str]) -> Iterator[ConfigLine]:
    """Keys of YAML, and of JSON that is written over several lines, by their indentation."""
    above: list[tuple[int, str]] = []
    for number, line in enumerate(lines, 1):
        match = _LINE.match(line)
        if match is None:
            continue
        above = [(depth, key) for depth, key in above if depth < len(match["indent"])]
        above.append((len(match["indent"]), match["key"]))
        yield ConfigLine(number, tuple(key for _, key in above), match["text"].strip("\"' "))


def _list_tables(lines: list[str]) -> Iterator[ConfigLine]:
    """Keys of TOML, below their table's: ``[data.loader]``."""
    table: tuple[str, ...] = ()
    for number, line in enumerate(lines, 1):
        head, match = _TABLE.match(line), _LINE.match(line)
        if head is not None:
            table = tuple(part.strip("\"' ") for part in head["keys"].split("."))
        elif match is not None:
            yield ConfigLine(number, (*table, *match["key"].split(".")), match["text"].strip("\"' "))


def _list_python(tree: ast.Module) -> Iterator[ConfigLine]:
    """Variables of a configuration in Python, and the keys of dictionaries in them."""
    for statement in tree.body:
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        for target in targets:
            if isinstance(target, ast.Name) and isinstance(statement, ast.Assign):
                yield from _list_value((target.id,), statement.value)


def _list_value(keys: tuple[str, ...], value: ast.expr) -> Iterator[ConfigLine]:
    inner: list[tuple[str, ast.expr]] = []
    if isinstance(value, ast.Dict):
        inner = [
            (str(key.value), item)
            for key, item in zip(value.keys, value.values, strict=True)
            if isinstance(key, ast.Constant)
        ]
    elif isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "dict":
        inner = [(word.arg, word.value) for word in value.keywords if word.arg is not None]
    yield ConfigLine(value.lineno, keys, "" if inner else ast.unparse(value))
    for key, item in inner:
        yield from _list_value((*keys, key), item)
