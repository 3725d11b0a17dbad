"""The configuration that Hydra puts together for a script: which files, and the key of a line in it."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pipetune.sourcetext.config_lines import ConfigLine, list_config_lines
from pipetune.sourcetext.scope import parse_file

_GROUP = re.compile(
    r"^\s*-\s*(?:override\s+|optional\s+)*/?(?P<group>[\w/]+)(?:@(?P<package>[\w.]+))?\s*:\s*(?P<name>[\w./-]+)"
)
#: Options of Hydra's own with which a command takes another configuration; the last ones another folder.
_NAME_OPTIONS, _FOLDER_OPTIONS = ("--config-name", "-cn"), ("--config-path", "-cp", "--config-dir", "-cd")


@dataclass(frozen=True, slots=True)
class HydraFile:
    """A configuration file that is in effect."""

    place: Path
    above: tuple[str, ...]
    """The key under which its content stands; empty: at the top."""


def list_hydra_files(words: Sequence[str], files: Sequence[str]) -> list[HydraFile]:
    """Configuration files that are in effect; none where the command takes them from another folder.

    Args:
        words: of the command, which may choose other files: ``data=cifar``.
        files: of the script.
    """
    if any(word.partition("=")[0] in _FOLDER_OPTIONS for word in words):
        return []
    entries: dict[HydraFile, None] = {}
    for file in files:
        for folder, name in _list_primary(file):
            primary = folder / f"{_find_name(words) or name}.yaml"
            entries[HydraFile(primary, ())] = None
            chosen = _read_groups(primary)
            for word in words:
                group, equals, value = word.lstrip("+").partition("=")
                group, _, package = group.partition("@")
                if equals and (folder / group).is_dir():
                    chosen[group, package] = value
            for (group, package), value in chosen.items():
                place = folder / group / f"{value.removesuffix('.yaml')}.yaml"
                above = () if _is_global(place) else tuple((package or group.replace("/", ".")).split("."))
                entries[HydraFile(place, () if package == "_global_" else above)] = None
    return [entry for entry in entries if entry.place.is_file()]


def list_hydra_lines(words: Sequence[str], files: Sequence[str], kind: str | None = None) -> list[HydraLine]:
    """The lines of the files in effect with their whole keys.

    Args:
        kind: class of which Hydra makes an object; where sections name it as their ``_target_``, theirs alone.
    """
    lines = [
        HydraLine(entry.place.resolve(), replace(line, keys=(*entry.above, *line.keys)))
        for entry in list_hydra_files(words, files)
        for line in list_config_lines(entry.place)
    ]
    targets = [line for line in lines if line.entry.keys[-1] == "_target_"]
    sections = {line.entry.keys[:-1] for line in targets if line.entry.text.rpartition(".")[2] == kind}
    return [line for line in lines if not sections or line.entry.keys[:-1] in sections]


@dataclass(frozen=True, slots=True)
class HydraLine:
    """A line of a configuration file, with its key from the top of the whole configuration."""

    place: Path
    entry: ConfigLine


def find_hydra_key(name: str, words: Sequence[str], files: Sequence[str], kind: str | None = None) -> str | None:
    """The whole key of the only line in Hydra's configuration whose own key this is: ``data.num_workers``.

    Args:
        kind: class that has the key as a parameter of its constructor.

    Returns:
        ``None``: Hydra does not start the script, or no line has the key, or several have.
    """
    keys = {".".join(line.entry.keys) for line in list_hydra_lines(words, files, kind) if line.entry.keys[-1] == name}
    return next(iter(keys)) if len(keys) == 1 else None


def _find_name(words: Sequence[str]) -> str | None:
    """The primary configuration that a command names: ``--config-name other``."""
    for number, word in enumerate(words):
        option, equals, value = word.partition("=")
        if option in _NAME_OPTIONS:
            name = value if equals else next(iter(words[number + 1 : number + 2]), "")
            return name.removesuffix(".yaml")
    return None


def _list_primary(file: str) -> list[tuple[Path, str]]:
    """Folder and name of the configuration that ``hydra.main`` names in a file."""
    tree = parse_file(file)
    named = []
    for node in () if tree is None else ast.walk(tree):
        if isinstance(node, ast.Call) and "main" in ast.unparse(node.func):
            given = {word.arg: word.value.value for word in node.keywords if isinstance(word.value, ast.Constant)}
            if "config_name" in given:
                folder = Path(file).parent / str(given.get("config_path") or ".")
                named.append((folder.resolve(), str(given["config_name"]).removesuffix(".yaml")))
    return named


def _read_groups(primary: Path) -> dict[tuple[str, str], str]:
    """Group and package (empty: the group's own) -> file of it, as the primary configuration's ``defaults`` say."""
    groups = {}
    for line in _read_lines(primary):
        match = _GROUP.match(line)
        if match is not None and match["name"] != "null":
            groups[match["group"], match["package"] or ""] = match["name"]
    return groups


def _is_global(place: Path) -> bool:
    return any("@package _global_" in line for line in _read_lines(place)[:3])


def _read_lines(place: Path) -> list[str]:
    try:
        return place.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
