"""Other statements that may have given a variable or an attribute the value that a loader has.

A place is named only where no other one explains the value as well: the text does not tell which of them ran.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Any

from pipetune.sourcetext.expressions import list_names, may_give
from pipetune.sourcetext.scope import Function, Scope, is_parameter, list_assigned, list_modules, parse_file

#: Calls that make a changed copy of an object.
_COPIES = frozenset({"replace", "_replace", "evolve", "copy", "model_copy"})
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def is_bound_between(name: ast.Name, scope: Scope) -> bool:
    """Whether a comprehension around a name, or a function around its function, gives the name its value."""
    for node in ast.walk(scope.tree):
        if isinstance(node, _COMPREHENSIONS):
            is_bound = any(_stores(generator.target, name.id) for generator in node.generators)
            inside: ast.AST | None = name
        elif isinstance(node, _FUNCTIONS) and node is not scope.function:
            is_bound, inside = _binds(node, name.id), scope.function
        else:
            continue
        if is_bound and inside is not None and any(part is inside for part in ast.walk(node)):
            return True
    return False


def _stores(target: ast.expr, name: str) -> bool:
    return any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(target))


def _binds(function: Function, name: str) -> bool:
    return is_parameter(function, name) or bool(not isinstance(function, ast.Lambda) and list_assigned(function, name))


def is_stored(name: str, value: Any, files: Sequence[str]) -> bool:
    """Whether a statement may have given an attribute or key of this name a value, other than one of that name."""
    for file in files:
        for node in ast.walk(parse_file(file) or ast.Module([], [])):
            if not isinstance(node, ast.Assign) or _last_name(node.value) == name or not may_give(node.value, value):
                continue
            if any(list_names(target)[-1:] == [name] for target in node.targets):
                return True
    return False


def _last_name(value: ast.expr) -> str | None:
    return value.id if isinstance(value, ast.Name) else next(iter(list_names(value)[-1:]), None)


def has_variable_rival(name: str, scope: Scope, files: Sequence[str], roots: Sequence[str], value: Any) -> bool:
    """Whether something else than the statements of its module may give a module's variable a value."""
    for node in ast.walk(scope.tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        is_global = any(isinstance(part, ast.Global) and name in part.names for part in ast.walk(node))
        if is_global and any(may_give(given, value) for _, given in list_assigned(node, name)):
            return True
    return any(
        may_give(given, value)
        for file, owner, given, _ in _list_stored(name, files)
        if (tree := parse_file(file)) is not None and list_modules(tree, file, roots).get(owner) == (scope.file, None)
    )


def has_attribute_rival(
    name: str, kind: ast.ClassDef, files: Sequence[str], value: Any, but: ast.expr | None = None
) -> bool:
    """Whether the objects of a class may have an attribute's value from elsewhere than the statement that is known.

    Args:
        but: the value in the statement that is known.
    """
    below = _list_below(kind, files)
    related = {kind.name, *(base.id for base in kind.bases if isinstance(base, ast.Name)), *(one.name for one in below)}
    for _, owner, given, around in _list_stored(name, files):
        elsewhere = owner in ("self", "cls") and (around is None or around.name not in related)
        if given is not but and not elsewhere and may_give(given, value):
            return True
    if any(may_give(given, value) for inner in below for _, given in list_assigned(inner, name)):
        return True
    return any(
        word.arg == name and word.value is not but and may_give(word.value, value)
        for call in _list_calls(files)
        if _called(call) in _COPIES | {inner.name for inner in below}
        for word in call.keywords
    )


def has_constructor_rival(name: str, kind: ast.ClassDef, files: Sequence[str], value: Any) -> bool:
    """Whether a class that inherits from another one may give a parameter of the inherited constructor a value."""
    below = _list_below(kind, files)
    made = {inner.name for inner in below}
    calls = [call for call in _list_calls(files) if _called(call) in made]
    calls += [
        node
        for inner in below
        for node in ast.walk(inner)
        if isinstance(node, ast.Call) and _called(node) == "__init__"
    ]
    given = [word for call in calls for word in call.keywords if word.arg in (name, None)]
    positional = any(call.args for call in calls)
    return positional or any(word.arg is None or may_give(word.value, value) for word in given)


def _list_below(kind: ast.ClassDef, files: Sequence[str]) -> list[ast.ClassDef]:
    """The classes of the script that inherit from a class, directly or not."""
    kinds = [node for file in files for node in ast.walk(parse_file(file) or ast.Module([], []))
             if isinstance(node, ast.ClassDef)]  # fmt: skip
    below: list[ast.ClassDef] = [kind]
    for above in below:  # grows meanwhile
        below += [
            inner
            for inner in kinds
            if inner not in below
            and any(getattr(base, "attr", getattr(base, "id", None)) == above.name for base in inner.bases)
        ]
    return below[1:]


def _list_stored(name: str, files: Sequence[str]) -> Iterator[tuple[str, str, ast.expr | None, ast.ClassDef | None]]:
    """Statements that set an attribute of this name: file, the variable whose attribute it is, value, class around."""
    for file in files:
        tree = parse_file(file)
        if tree is not None:
            yield from ((file, *stored) for stored in _walk_stored(tree, name, None))


def _walk_stored(
    node: ast.AST, name: str, kind: ast.ClassDef | None
) -> Iterator[tuple[str, ast.expr | None, ast.ClassDef | None]]:
    for child in ast.iter_child_nodes(node):
        yield from _walk_stored(child, name, child if isinstance(child, ast.ClassDef) else kind)
        if not isinstance(child, ast.Assign | ast.AnnAssign | ast.AugAssign):
            continue
        targets = child.targets if isinstance(child, ast.Assign) else [child.target]
        for target in targets:
            for part in ast.walk(target):
                if isinstance(part, ast.Attribute) and part.attr == name and isinstance(part.ctx, ast.Store):
                    whole = part is target and not isinstance(child, ast.AugAssign)
                    yield ast.unparse(part.value), child.value if whole else None, kind


def _list_calls(files: Sequence[str]) -> list[ast.Call]:
    return [node for file in files for node in ast.walk(parse_file(file) or ast.Module([], []))
            if isinstance(node, ast.Call)]  # fmt: skip


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
