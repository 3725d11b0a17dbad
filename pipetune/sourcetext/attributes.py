"""One step back from an attribute: ``self.workers``, ``config.WORKERS``, ``cfg.workers`` of a class of settings."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pipetune.sourcetext.rivals import has_attribute_rival, has_constructor_rival, has_variable_rival
from pipetune.sourcetext.scope import (
    Function,
    Scope,
    find_default,
    is_parameter,
    list_assigned,
    list_guarded,
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
    node: ast.Attribute, scope: Scope, files: Sequence[str], roots: Sequence[str], value: Any, program: str
) -> Written | None:
    """The expression that an attribute has its value from; ``None``: the text does not tell.

    Args:
        files: of the script.
        roots: folders in which its modules are looked for.
        value: that the loader has in the end; other statements count only where they may have given it.
        program: the file that is started.
    """
    owner = node.value
    search = _Search(files, value, program)
    if isinstance(owner, ast.Name) and owner.id in ("self", "cls") and scope.kind is not None:
        return _from_object(search, node.attr, scope, scope.kind)
    if isinstance(owner, ast.Attribute) and owner.attr == "hparams" and scope.kind is not None:
        if has_attribute_rival(node.attr, scope.kind, files, value):
            return None
        return _from_constructor(search, node.attr, scope, scope.kind)
    if not isinstance(owner, ast.Name):
        return None
    place, inside = list_modules(scope.tree, scope.file, roots).get(owner.id, ("", None))
    if place and inside is None:
        tree = parse_file(place)
        if tree is None or has_variable_rival(node.attr, Scope(place, tree), files, roots, value):
            return None
        return _only(list_assigned(tree, node.attr), node.attr, Scope(place, tree))
    return _from_settings(search, node.attr, owner.id, scope)


@dataclass(frozen=True, slots=True)
class _Search:
    files: Sequence[str]
    value: Any
    program: str


def _only(assigned: Sequence[tuple[ast.stmt, ast.expr | None]], name: str, scope: Scope) -> Written | None:
    """What a variable is given where that happens once only."""
    if len(assigned) != 1 or assigned[0][1] is None:
        return None
    return Written(name, assigned[0][1], replace(scope, depth=_NO_CALLER, line=assigned[0][0].lineno))


def _from_settings(search: _Search, name: str, variable: str, scope: Scope) -> Written | None:
    """The field of a class, for a variable that is the class, or an object of it that one call makes."""
    call = _call_behind(variable, scope)
    kind = call.func.id if call is not None and isinstance(call.func, ast.Name) else variable
    place = _find_class(kind, search.files)
    if place is None or (call is None and _is_bound(variable, kind, scope)):
        return None
    definition, where = place
    if call is None or find_constructor(definition) is None:
        keywords = [] if call is None else call.keywords
        given = next((word.value for word in keywords if word.arg == name), None)
        if has_attribute_rival(name, definition, search.files, search.value, but=given):
            return None
        if call is not None and (call.args or any(word.arg is None for word in keywords)):
            return None
        if given is not None:
            return Written(name, given, replace(scope, depth=_NO_CALLER, line=given.lineno))
        return _only(list_assigned(definition, name), name, where)
    return _from_object(search, name, replace(where, kind=definition), definition)


def _is_bound(variable: str, kind: str, scope: Scope) -> bool:
    """Whether a variable is something else than a class of its name."""
    bodies = [body for body in (scope.function, scope.tree) if body is not None and not isinstance(body, ast.Lambda)]
    return variable != kind or any(list_assigned(body, variable) for body in bodies)


def _from_object(search: _Search, name: str, scope: Scope, kind: ast.ClassDef) -> Written | None:
    """What ``self.NAME`` is given, where one statement of the class gives it."""
    given = [
        (statement, statement.value, function)
        for statement, function, inside in walk_with_scopes(kind)
        if inside is None and isinstance(statement, ast.Assign | ast.AnnAssign)
        and any(_is_own(target, name) for target in _targets(statement))
    ]  # fmt: skip
    if has_attribute_rival(name, kind, search.files, search.value, but=given[0][1] if given else None):
        return None
    if not given:
        return _only(list_assigned(kind, name), name, replace(scope, function=None))
    statement, value, function = given[0]
    if len(given) != 1 or value is None or function is None:
        return None
    if isinstance(value, ast.Name) and is_parameter(function, value.id):
        if list_assigned(function, value.id):
            return None
        return _from_constructor(search, value.id, scope, kind)
    return Written(name, value, replace(scope, function=function, kind=kind, depth=_NO_CALLER, line=statement.lineno))


def _targets(statement: ast.Assign | ast.AnnAssign) -> list[ast.expr]:
    return statement.targets if isinstance(statement, ast.Assign) else [statement.target]


def _is_own(target: ast.expr, name: str) -> bool:
    return (
        isinstance(target, ast.Attribute) and target.attr == name
        and isinstance(target.value, ast.Name) and target.value.id == "self"
    )  # fmt: skip


def find_constructor(kind: ast.ClassDef) -> Function | None:
    """The constructor that a class writes itself; ``None``: it has another class's, or one that is made for it."""
    return next((part for part in kind.body if isinstance(part, ast.FunctionDef) and part.name == "__init__"), None)


def _from_constructor(search: _Search, name: str, scope: Scope, kind: ast.ClassDef) -> Written | None:
    """What the only call of a class gives for a parameter of its constructor; else the parameter's default."""
    constructor = find_constructor(kind)
    if constructor is None or not is_parameter(constructor, name):
        return None
    if has_constructor_rival(name, kind, search.files, search.value):
        return None
    calls = list_calls(kind.name, search.files, search.program)
    if len(calls) == 1:
        call, outside = calls[0]
        given = next((word.value for word in call.keywords if word.arg == name), None)
        names = list_parameters(constructor)
        position = names.index(name) - 1 if name in names else len(call.args)
        if any(isinstance(part, ast.Starred) for part in call.args):
            return None
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


def list_calls(name: str, files: Sequence[str], program: str) -> list[tuple[ast.Call, Scope]]:
    """Calls of something of this name in the script's files, each with the scope around it.

    Args:
        program: the file that is started; what other files do only as programs, a short trial of theirs, does not run.
    """
    calls = []
    for file in files:
        tree = parse_file(file)
        trials = [] if tree is None or file == program else list_guarded(tree)
        for node, function, kind in () if tree is None else walk_with_scopes(tree):
            called = getattr(node.func, "id", getattr(node.func, "attr", None)) if isinstance(node, ast.Call) else None
            if isinstance(node, ast.Call) and called == name and tree is not None and node not in trials:
                calls.append((node, Scope(file, tree, function, kind, _NO_CALLER, node.lineno)))
    return calls


def _call_behind(name: str, scope: Scope) -> ast.Call | None:
    """The call of a class that makes a variable's value, where that is assigned once."""
    for body in (scope.function, scope.tree):
        assigned = [] if body is None or isinstance(body, ast.Lambda) else list_assigned(body, name)
        if assigned:
            value = assigned[0][1] if len(assigned) == 1 else None
            return value if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) else None
    return None


def _find_class(name: str, files: Sequence[str]) -> tuple[ast.ClassDef, Scope] | None:
    for file in files:
        tree = parse_file(file)
        for statement in () if tree is None else list_statements(tree):
            if isinstance(statement, ast.ClassDef) and statement.name == name and tree is not None:
                return statement, Scope(file, tree)
    return None
