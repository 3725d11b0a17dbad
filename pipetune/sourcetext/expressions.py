"""What single expressions of a script's text say."""

from __future__ import annotations

import ast
from typing import Any


def list_names(value: ast.expr) -> list[str]:
    """``["cfg", "data", "num_workers"]`` of ``cfg.data["num_workers"]``; none of a plain variable or a computation."""
    names: list[str] = []
    while isinstance(value, ast.Attribute | ast.Subscript):
        if isinstance(value, ast.Attribute):
            names.append(value.attr)
        elif isinstance(value.slice, ast.Constant):
            names.append(str(value.slice.value))
        else:
            return []
        value = value.value
    return [value.id, *names[::-1]] if names and isinstance(value, ast.Name) else names[::-1]


def may_give(expression: ast.expr | None, value: Any) -> bool:
    """Whether an expression may have given a value; a constant has to be equal."""
    if expression is None:
        return True
    try:
        return bool(ast.literal_eval(expression) == value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return True  # computed when the script runs


def find_whole_number(value: ast.expr) -> ast.expr | None:
    """What ``int(...)`` is made from, where that is a name, an attribute or a key."""
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Name) or value.func.id != "int":
        return None
    inner = value.args[0] if len(value.args) == 1 and not value.keywords else None
    return inner if isinstance(inner, ast.Name | ast.Attribute | ast.Subscript) else None
