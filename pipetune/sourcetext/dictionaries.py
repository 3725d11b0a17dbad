"""The statements that make and change a dictionary, and the calls that take it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


@dataclass(frozen=True, slots=True)
class DictionaryChange:
    """A value that a dictionary is made from, an ``update`` call, or a dictionary of the single key that is set."""

    value: ast.expr
    is_certain: bool
    """It happens whenever the place is reached at which the dictionary is taken; ``False``: in a branch only."""


def list_changes(body: ast.AST, variable: str, before_line: int) -> list[DictionaryChange]:
    """What a dictionary is made from and changed with before a line, the last first."""
    changes = []
    for statement, is_certain in _walk_statements(body, before_line):
        if statement.lineno <= before_line:
            changes += [DictionaryChange(value, is_certain) for value in _list_values(statement, variable)]
    return changes[::-1]


def list_defaults(body: ast.AST, variable: str, before_line: int) -> list[ast.expr]:
    """Dictionaries of the single keys that ``setdefault`` adds before a line."""
    return [
        ast.copy_location(ast.Dict([call.args[0]], [call.args[1]]), call)
        for statement, _ in _walk_statements(body, before_line)
        if isinstance(statement, ast.Expr) and (call := _method_call(statement, variable, "setdefault")) is not None
        and len(call.args) == 2 and statement.lineno <= before_line
    ]  # fmt: skip


def list_takers(body: ast.AST, variable: str, line: int) -> tuple[int, ...]:
    """Lines of other calls than that of a line which take a dictionary with ``**``."""
    return tuple(sorted({
        node.lineno
        for node in ast.walk(body)
        if isinstance(node, ast.Call) and node.lineno != line
        and any(word.arg is None and _is_name(word.value, variable) for word in node.keywords)
    }))  # fmt: skip


def _list_values(statement: ast.stmt, variable: str) -> list[ast.expr]:
    values: list[ast.expr] = []
    if isinstance(statement, ast.Assign):
        for target in statement.targets:
            if _is_name(target, variable):
                values.append(statement.value)
            elif isinstance(target, ast.Subscript) and _is_name(target.value, variable):
                values.append(ast.copy_location(ast.Dict([target.slice], [statement.value]), statement))
    elif isinstance(statement, ast.AnnAssign) and _is_name(statement.target, variable):
        values += [] if statement.value is None else [statement.value]
    elif isinstance(statement, ast.AugAssign) and _is_name(statement.target, variable):
        values.append(statement.value)
    elif isinstance(statement, ast.Expr):
        call = _method_call(statement, variable, "update")
        values += [] if call is None else [call]
    return values


def _method_call(statement: ast.Expr, variable: str, name: str) -> ast.Call | None:
    call = statement.value
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return None
    return call if call.func.attr == name and _is_name(call.func.value, variable) else None


def _is_name(value: ast.expr, name: str) -> bool:
    return isinstance(value, ast.Name) and value.id == name


def _walk_statements(body: ast.AST, line: int, *, is_certain: bool = True) -> Iterator[tuple[ast.stmt, bool]]:
    """Statements in their order, without those of functions and classes inside; each with whether it runs whenever a
    line is reached: it stands in no branch and no loop, or in one that has the line, too."""
    for _, part in ast.iter_fields(body):
        for child in part if isinstance(part, list) else [part]:
            if not isinstance(child, ast.AST) or isinstance(child, _DEFINITIONS):
                continue
            if isinstance(child, ast.stmt):
                yield child, is_certain
            is_branch = isinstance(child, ast.If | ast.For | ast.AsyncFor | ast.While | ast.Try)
            yield from (
                _walk_arms(child, line, is_certain)
                if is_branch
                else _walk_statements(child, line, is_certain=is_certain)
            )


def _walk_arms(branch: ast.AST, line: int, is_certain: bool) -> Iterator[tuple[ast.stmt, bool]]:
    for _, part in ast.iter_fields(branch):
        for child in part if isinstance(part, list) else []:
            inside = part[0].lineno <= line <= (part[-1].end_lineno or 0)
            yield from _walk_statements(ast.Module([child], []), line, is_certain=is_certain and inside)
