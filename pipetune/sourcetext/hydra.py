"""The configuration that Hydra puts together for a script: which files, and the key of a line in it."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from pathlib import Path

from pipetune.sourcetext.config_lines import list_config_lines
from pipetune.sourcetext.scope import parse_file

_GROUP = re.compile(r"^\s*-\s*(?:override\s+|optional\s+)*/?(?P<group>[\w/]+)(?:@[\w.]+)?\s*:\s*(?P<name>[\w./-]+)")


def list_hydra_files(words: Sequence[str], files: Sequence[str]) -> dict[Path, str]:
    """Configuration files that are in effect -> the key under which each one's content stands (``""``: at the top).

    Args:
        words: of the command, which may choose other files: ``data=cifar``.
        files: of the script.
    """
    places: dict[Path, str] = {}
    for file in files:
        for folder, name in _list_primary(file):
            primary = folder / f"{name}.yaml"
            places[primary] = ""
            chosen = _read_groups(primary)
            for word in words:
                group, equals, value = word.partition("=")
                if equals and (folder / group).is_dir():
                    chosen[group] = value
            for group, value in chosen.items():
                place = folder / group / f"{value.removesuffix('.yaml')}.yaml"
                places[place] = "" if _is_global(place) else group.replace("/", ".")
    return {place: key for place, key in places.items() if place.is_file()}


def find_hydra_key(name: str, words: Sequence[str], files: Sequence[str]) -> str | None:
    """The whole key of the only line in Hydra's configuration whose own key this is: ``data.num_workers``.

    Returns:
        ``None``: Hydra does not start the script, or no line has the key, or several have.
    """
    keys = [
        ".".join(part for part in (above, *entry.keys) if part)
        for place, above in list_hydra_files(words, files).items()
        for entry in list_config_lines(place)
        if entry.keys[-1] == name
    ]
    return keys[0] if len(keys) == 1 else None


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


def _read_groups(primary: Path) -> dict[str, str]:
    """Group -> file of it, as the primary configuration's ``defaults`` say."""
    groups = {}
    for line in _read_lines(primary):
        match = _GROUP.match(line)
        if match is not None and match["name"] != "null":
            groups[match["group"]] = match["name"]
    return groups


def _is_global(place: Path) -> bool:
    return any("@package _global_" in line for line in _read_lines(place)[:3])


def _read_lines(place: Path) -> list[str]:
    try:
        return place.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
