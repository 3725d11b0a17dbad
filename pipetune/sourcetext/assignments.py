"""Whether a script's statements give the value of an option anew."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from typing import Any

from pipetune.sourcetext.declarations import DEFINES, called_name
from pipetune.sourcetext.scope import parse_file


class Assigned:
    """Whether the script gives the option's name another value."""

    NEVER, SOMETIMES, ALWAYS = range(3)


def tell_assigned(wanted: str, files: Sequence[str], value: Any) -> int:
    """Whether statements compute the value anew: never, in a branch only, or always.

    A branch may not have run. Whether it has is told by the value that the loader got, unless the branch gives just
    that.
    """
    answer = Assigned.NEVER
    for file in files:
        tree = parse_file(file)
        for statement, in_branch in () if tree is None else _walk_branches(tree):
            if _is_computed(statement, wanted):
                given = getattr(statement, "value", None)
                has_run = isinstance(given, ast.Constant) and given.value == value
                answer = max(answer, Assigned.SOMETIMES if in_branch and not has_run else Assigned.ALWAYS)
    return answer


def _walk_branches(node: ast.AST, *, in_branch: bool = False) -> Iterable[tuple[ast.AST, bool]]:
    for child in ast.iter_child_nodes(node):
        inside = in_branch or isinstance(node, ast.If | ast.Try | ast.ExceptHandler)
        yield child, inside
        yield from _walk_branches(child, in_branch=inside)


def _is_computed(node: ast.AST, wanted: str) -> bool:
    """Whether a statement gives an attribute or variable of this name a value, other than one of that name."""
    if isinstance(node, ast.Assign):
        targets: list[ast.expr] = node.targets
    elif isinstance(node, ast.AugAssign | ast.AnnAssign) and node.value is not None:
        targets = [node.target]
    else:
        return False
    value = node.value
    name = getattr(value, "attr", getattr(value, "id", None))
    if name == wanted and not isinstance(node, ast.AugAssign):
        return False
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return False  # a field's or variable's declaration
    if isinstance(value, ast.Call) and called_name(value) in DEFINES:
        return False
    parts = [part for target in targets for part in ast.walk(target)]
    return any(
        getattr(part, "attr", getattr(part, "id", None)) == wanted and isinstance(getattr(part, "ctx", None), ast.Store)
        for part in parts
    )
