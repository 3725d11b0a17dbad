"""One step back from an attribute: ``self.workers``, ``config.WORKERS``, ``cfg.workers`` of a class of settings."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace

from pipetune.sourcetext.scope import (
    Function,
    Scope,
    find_default,
    is_parameter,
    list_assigned,
    list_modules,
    list_parameters,
    list_statements,
    parse_file,
    walk_with_scopes,
)
from pipetune.sourcetext.written import Written

#: Deeper than any call that is on the way to the loader: an object's constructor has returned long ago.
_NO_CALLER = 1 << 20


def step_from_attribute(
    value: ast.Attribute, scope: Scope, files: Sequence[str], roots: Sequence[str]
) -> Written | None:
    """The expression that an attribute has its value from; ``None``: the text does not tell.

    Args:
        files: of the script.
        roots: folders in which its modules are looked for.
    """
    owner = value.value
    if isinstance(owner, ast.Name) and owner.id in ("self", "cls") and scope.kind is not None:
        return _from_object(value.attr, scope, scope.kind, files)
    if isinstance(owner, ast.Attribute) and owner.attr == "hparams" and scope.kind is not None:
        return _from_constructor(value.attr, scope, scope.kind, files)
    if not isinstance(owner, ast.Name):
        return None
    place, inside = list_modules(scope.tree, scope.file, roots).get(owner.id, ("", None))
    if place and inside is None:
        tree = parse_file(place)
        return None if tree is None else _only(list_assigned(tree, value.attr), value.attr, Scope(place, tree))
    kind = _class_behind(owner.id, scope)
    found = None if kind is None else _find_class(kind, files)
    if found is None:
        return None
    definition, where = found
    return _only(list_assigned(definition, value.attr), value.attr, where)


def _only(assigned: Sequence[tuple[ast.stmt, ast.expr | None]], name: str, scope: Scope) -> Written | None:
    """What a variable is given where that happens once only."""
    if len(assigned) != 1 or assigned[0][1] is None:
        return None
    return Written(name, assigned[0][1], replace(scope, depth=_NO_CALLER, line=assigned[0][0].lineno))


def _from_object(name: str, scope: Scope, kind: ast.ClassDef, files: Sequence[str]) -> Written | None:
    """What ``self.NAME`` is given, where one statement of the class gives it."""
    given = [
        (statement, statement.value, function)
        for statement, function, inside in walk_with_scopes(kind)
        if inside is None and isinstance(statement, ast.Assign | ast.AnnAssign)
        and any(_is_own(target, name) for target in _targets(statement))
    ]  # fmt: skip
    if not given:
        return _only(list_assigned(kind, name), name, replace(scope, function=None))
    statement, value, function = given[0]
    if len(given) != 1 or value is None or function is None:
        return None
    if isinstance(value, ast.Name) and is_parameter(function, value.id):
        return _from_constructor(value.id, scope, kind, files)
    return Written(name, value, replace(scope, function=function, kind=kind, depth=_NO_CALLER, line=statement.lineno))


def _targets(statement: ast.Assign | ast.AnnAssign) -> list[ast.expr]:
    return statement.targets if isinstance(statement, ast.Assign) else [statement.target]


def _is_own(target: ast.expr, name: str) -> bool:
    return (
        isinstance(target, ast.Attribute) and target.attr == name
        and isinstance(target.value, ast.Name) and target.value.id == "self"
    )  # fmt: skip


def _from_constructor(name: str, scope: Scope, kind: ast.ClassDef, files: Sequence[str]) -> Written | None:
    """What the only call of a class gives for a parameter of its constructor; else the parameter's default."""
    constructor: Function | None = next(
        (part for part in kind.body if isinstance(part, ast.FunctionDef) and part.name == "__init__"), None
    )
    if constructor is None or not is_parameter(constructor, name):
        return None
    calls = list_calls(kind.name, files)
    if len(calls) == 1:
        call, outside = calls[0]
        given = next((word.value for word in call.keywords if word.arg == name), None)
        names = list_parameters(constructor)
        position = names.index(name) - 1 if name in names else len(call.args)
        if given is None and position < len(call.args):
            given = call.args[position]
        if given is not None:
            return Written(name, given, replace(outside, depth=_NO_CALLER))
        if any(word.arg is None for word in call.keywords):
            return None
    default = find_default(constructor, name)
    if len(calls) > 1 or default is None:
        return None
    where = replace(scope, function=constructor, kind=kind, depth=_NO_CALLER)
    return Written(name, default, where, by_default=not calls)


def list_calls(name: str, files: Sequence[str]) -> list[tuple[ast.Call, Scope]]:
    """Calls of something of this name in the script's files, each with the scope around it."""
    calls = []
    for file in files:
        tree = parse_file(file)
        for node, function, kind in () if tree is None else walk_with_scopes(tree):
            called = getattr(node.func, "id", getattr(node.func, "attr", None)) if isinstance(node, ast.Call) else None
            if isinstance(node, ast.Call) and called == name and tree is not None:
                calls.append((node, Scope(file, tree, function, kind, _NO_CALLER, node.lineno)))
    return calls


def _class_behind(name: str, scope: Scope) -> str | None:
    """The class of which a variable is an object, where it is made by one call; or the name itself."""
    for body in (scope.function, scope.tree):
        assigned = [] if body is None or isinstance(body, ast.Lambda) else list_assigned(body, name)
        value = assigned[0][1] if len(assigned) == 1 else None
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
            return value.func.id
        if assigned:
            return None
    return name


def _find_class(name: str, files: Sequence[str]) -> tuple[ast.ClassDef, Scope] | None:
    for file in files:
        tree = parse_file(file)
        for statement in () if tree is None else list_statements(tree):
            if isinstance(statement, ast.ClassDef) and statement.name == name and tree is not None:
                return statement, Scope(file, tree)
    return None
