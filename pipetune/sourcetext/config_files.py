"""Where a key of a configuration file is written: in a file that the command or the script's text names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pipetune.records.script import SettingOrigin
from pipetune.sourcetext.config_lines import CONFIG_ENDINGS, ConfigLine, list_config_lines
from pipetune.sourcetext.hydra import list_hydra_files, list_hydra_lines
from pipetune.sourcetext.scope import parse_file

#: Parts of names under which the settings of loaders stand that nothing is trained on.
_NOT_TRAINED = frozenset({
    "val", "valid", "validation", "test", "testing", "eval", "evaluation", "predict", "prediction", "inference",
})  # fmt: skip

_Line = tuple[Path, ConfigLine]


def find_in_config(
    names: Sequence[str], value: Any, words: Sequence[str], files: Sequence[str], kind: str | None = None
) -> SettingOrigin | None:
    """The only line of a configuration file that gives a key the value which the loader has.

    Args:
        names: the key, after those names above it which the script's expression has: ``("train", "num_workers")``.
        value: that the loader has.
        words: of the command.
        files: of the script.
        kind: class that has the key as a parameter of its constructor.

    Returns:
        ``None``: no file has such a line, several have, or a line refers to another one (``${jobs}``).
    """
    lines = [pair for lines in _list_configurations(words, files, kind) for pair in _list_matching(lines, names)]
    if any(re.match(r"[$*<]", entry.text) for _, entry in lines):
        return None
    equal = [(place, entry) for place, entry in lines if _read(entry.text) == value]
    if len(equal) != 1:
        return None
    place, entry = equal[0]
    return SettingOrigin(file=str(place), line=entry.line, name=names[-1], text=entry.text)


def has_config_key(name: str, words: Sequence[str], files: Sequence[str]) -> bool:
    """Whether a configuration file has a line with this own key, whatever stands above it."""
    return any(entry.keys[-1] == name for lines in _list_configurations(words, files) for _, entry in lines)


def _list_matching(lines: Sequence[_Line], names: Sequence[str]) -> Iterable[_Line]:
    """Lines with this own key, below those of the names that are keys themselves, and for no other loader."""
    known = {key for _, entry in lines for key in entry.keys[:-1]}
    above = {name for name in names[:-1] if name in known}
    for place, entry in lines:
        *parents, key = entry.keys
        parts = {part for parent in parents if parent not in above for part in re.split(r"[_.-]", parent.lower())}
        if key == names[-1] and above <= set(parents) and not parts & _NOT_TRAINED:
            yield place, entry


def _list_configurations(words: Sequence[str], files: Sequence[str], kind: str | None = None) -> list[list[_Line]]:
    """The lines of each configuration; Hydra puts one together from several files."""
    hydra = [(line.place, line.entry) for line in list_hydra_lines(words, files, kind)]
    known = {entry.place.resolve() for entry in list_hydra_files(words, files)}
    others = [place for place in _list_places(words, files) if place not in known]
    return [hydra, *([(place, entry) for entry in list_config_lines(place)] for place in others)]


def _list_places(words: Sequence[str], files: Sequence[str]) -> list[Path]:
    """Configuration files that exist, by the names in the command and in the text of the script."""
    folders = list(dict.fromkeys([Path.cwd(), *(Path(file).parent for file in files)]))
    stated = [part for word in words for part in (word, word.partition("=")[2])]
    names = [name for name in stated if name.endswith((*CONFIG_ENDINGS, ".py"))]
    for file in files:
        names += _list_names(file)
    places: dict[Path, None] = {}
    own = {Path(file).resolve() for file in files}
    for name in names:
        for folder in folders:
            place = folder / name
            try:
                if place.is_file() and place.resolve() not in own:
                    places[place.resolve()] = None
                    break
            except (OSError, ValueError):
                continue
    return list(places)


def _list_names(file: str) -> Iterable[str]:
    """Names of configuration files in a script's text."""
    tree = parse_file(file)
    for node in () if tree is None else ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.endswith(CONFIG_ENDINGS):
            yield node.value


def _read(text: str) -> Any:
    """A value as YAML, JSON and TOML write numbers and booleans."""
    words = {"true": True, "false": False, "null": None, "~": None}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
