"""What the call of a function gives for one of its parameters."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from pipetune.records.script import SourceCall
from pipetune.sourcetext.scope import Scope, find_call, list_parameters
from pipetune.sourcetext.written import Written


def find_caller(scope: Scope, calls: Sequence[SourceCall]) -> tuple[ast.Call, Scope] | None:
    """The call of the function around a place; ``None``: a library calls it, or the text is not there."""
    outer = calls[scope.depth + 1] if scope.depth + 1 < len(calls) else None
    return None if outer is None or not outer.direct else find_call(outer, scope.depth + 1)


def find_given(name: str, scope: Scope, calls: Sequence[SourceCall]) -> Written | None:
    """The expression that a call writes for a parameter of the function around a place."""
    place = find_caller(scope, calls)
    if place is None:
        return None
    call, outside = place
    value = find_written(call, name, find_position(name, call, scope))
    return None if value is None else Written(name, value, outside)


def find_written(call: ast.Call, name: str, position: int | None) -> ast.expr | None:
    """What a call writes for an argument, by name or by position; ``None``: nothing, or it stands in a ``*list``."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    plain = call.args if not any(isinstance(value, ast.Starred) for value in call.args) else []
    return plain[position] if position is not None and 0 <= position < len(plain) else None


def find_position(name: str, call: ast.Call, scope: Scope) -> int | None:
    """The place of a parameter among the positional arguments of a call; ``None``: it has none."""
    names = [] if scope.function is None else list_parameters(scope.function)
    if name not in names:
        return None
    bound = scope.kind is not None and not isinstance(scope.function, ast.Lambda) and names[0] in ("self", "cls")
    return names.index(name) - (1 if bound else 0)
