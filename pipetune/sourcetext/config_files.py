"""Where a key of a configuration file is written: YAML, JSON or TOML that the command or the script's text names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pipetune.records.script import SettingOrigin
from pipetune.sourcetext.hydra import list_hydra_files
from pipetune.sourcetext.scope import parse_file

_ENDINGS = (".yaml", ".yml", ".json", ".toml")
#: Larger files are tables and not configurations (bytes).
_MAX_BYTES = 200_000
_KEY = re.compile(r"""^\s*(?:-\s+)?["']?(?P<key>[\w.-]+)["']?\s*[:=]\s*(?P<value>[^#]*?)\s*,?\s*(?:#.*)?$""")


def find_in_config(name: str, value: Any, words: Sequence[str], files: Sequence[str]) -> SettingOrigin | None:
    """The only line of a configuration file that gives a key the value which the loader has.

    Args:
        name: of the key, without those above it.
        value: that the loader has.
        words: of the command.
        files: of the script.

    Returns:
        ``None``: no file has such a line, or several have.
    """
    lines = [
        SettingOrigin(file=str(place.resolve()), line=number, name=name, text=text)
        for place in _list_places(words, files)
        for number, text in _list_lines(place, name)
        if _read(text) == value
    ]
    return lines[0] if len(lines) == 1 else None


def _list_places(words: Sequence[str], files: Sequence[str]) -> list[Path]:
    """Configuration files that exist, by the names in the command and in the text of the script."""
    folders = list(dict.fromkeys([Path.cwd(), *(Path(file).parent for file in files)]))
    names = [part for word in words for part in (word, word.partition("=")[2])]
    for file in files:
        names += _list_names(file)
    places: dict[Path, None] = dict.fromkeys(list_hydra_files(words, files))
    for name in names:
        for folder in folders:
            place = folder / name
            try:
                if place.is_file() and place.stat().st_size <= _MAX_BYTES:
                    places[place.resolve()] = None
                    break
            except (OSError, ValueError):
                continue
    return list(places)


def _list_names(file: str) -> Iterable[str]:
    """Names of configuration files in a script's text."""
    tree = parse_file(file)
    for node in () if tree is None else ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.endswith(_ENDINGS):
            yield node.value


def _list_lines(place: Path, name: str) -> Iterable[tuple[int, str]]:
    if not place.name.endswith(_ENDINGS):
        return
    try:
        lines = place.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for number, line in enumerate(lines, 1):
        match = _KEY.match(line)
        if match is not None and match["key"] == name:
            yield number, match["value"].strip("\"' ")


def _read(text: str) -> Any:
    """A value as YAML, JSON and TOML write numbers and booleans."""
    words = {"true": True, "false": False, "null": None, "~": None}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
