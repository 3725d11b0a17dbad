"""The only statement of a script that writes a value for an attribute or key, where what lies between is not followed.

Settings that are collected at run time, such as ``C.num_workers = 4`` in a function that makes a configuration, reach
the loader on ways that the text does not show.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Any

from pipetune.records.script import SettingOrigin
from pipetune.sourcetext.scope import parse_file


def find_only_setting(name: str, value: Any, files: Sequence[str]) -> SettingOrigin | None:
    """The line that writes the value which a loader has under this name; ``None``: none does, or several do.

    Args:
        name: of the attribute or key.
        value: that the loader has.
        files: of the script.
    """
    lines = [
        SettingOrigin(file=file, line=written.lineno, name=name, text=ast.unparse(written))
        for file in files
        for written in _list_written(file, name)
    ]
    values = [origin for origin in lines if _read(origin.text) == value]
    return values[0] if len(lines) == len(values) == 1 else None


def _list_written(file: str, name: str) -> Iterator[ast.expr]:
    """Expressions that are assigned to an attribute, a key or a variable of a class, or stand beside a key."""
    tree = parse_file(file)
    for node in () if tree is None else ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(_is_named(target, name) for target in targets):
                yield node.value
        elif isinstance(node, ast.Dict):
            for key, item in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == name:
                    yield item


def _is_named(target: ast.expr, name: str) -> bool:
    if isinstance(target, ast.Subscript):
        return isinstance(target.slice, ast.Constant) and target.slice.value == name
    return name == (target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", None))


def _read(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError):
        return None
