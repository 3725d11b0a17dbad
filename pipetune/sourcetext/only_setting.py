"""The only statement of a script that writes a value for an attribute or key, where what lies between is not followed.

Settings that are collected at run time, such as ``C.num_workers = 4`` in a function that makes a configuration, reach
the loader on ways that the text does not show.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Any

from pipetune.records.script import SettingOrigin
from pipetune.sourcetext.expressions import list_names, may_give
from pipetune.sourcetext.scope import parse_file


def find_only_setting(names: Sequence[str], value: Any, files: Sequence[str]) -> SettingOrigin | None:
    """The line that writes the value which a loader has under this name; ``None``: none does, or several do.

    Args:
        names: of the attribute or key, after those of the objects that hold it: ``("cfg", "TRAIN", "WORKERS")``.
        value: that the loader has.
        files: of the script.
    """
    name = names[-1]
    above = list(names[-2:]) if len(names) > 2 and names[0] != "self" else None
    written = [(file, *pair) for file in files for pair in _list_written(file, name)]
    equal = [(file, item) for file, item, path in written if _read(ast.unparse(item)) == value and path is not None]
    if len(equal) != 1 or any(path is not None and item is not equal[0][1] for _, item, path in written):
        return None
    if any(path is None and may_give(item, value) for _, item, path in written):
        return None
    file, item = equal[0]
    path = next(path for _, other, path in written if other is item)
    if above is not None and path is not None and len(path) > 2 and path[-2:] != above:
        return None
    return SettingOrigin(file=file, line=item.lineno, name=name, text=ast.unparse(item))


def _list_written(file: str, name: str) -> Iterator[tuple[ast.expr, list[str] | None]]:
    """Expressions that are assigned to an attribute, a key or a variable of a class, or stand beside a key, with the
    names of the target; ``None`` instead: a constant that a call is given under the name."""
    tree = parse_file(file)
    for node in () if tree is None else ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                names = [target.id] if isinstance(target, ast.Name) else list_names(target)
                if names and names[-1] == name:
                    yield node.value, names
        elif isinstance(node, ast.Dict):
            for key, item in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == name:
                    yield item, [name]
        elif isinstance(node, ast.keyword) and node.arg == name and isinstance(node.value, ast.Constant):
            yield node.value, None


def _read(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError):
        return None
