"""Source files as trees: the call at a place, the function around it, what is assigned and imported there."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipetune.records.script import SourceCall

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
#: Larger files are not parsed (bytes): a training script has some kilobytes, generated tables have many.
MAX_BYTES = 2_000_000
#: So many files of a script are read at most.
MAX_FILES = 200


@functools.lru_cache(maxsize=MAX_FILES)
def parse_file(file: str) -> ast.Module | None:
    """The tree of a source file; ``None``: it cannot be read, is too large, or is no Python."""
    try:
        if Path(file).stat().st_size > MAX_BYTES:
            return None
        return ast.parse(Path(file).read_text(encoding="utf-8", errors="replace"))
    except (SyntaxError, ValueError, OSError, RecursionError):
        return None


@dataclass(frozen=True, slots=True)
class Scope:
    """A place in a file: the innermost function and class around it; ``None``: there is none."""

    file: str
    tree: ast.Module
    function: Function | None = None
    kind: ast.ClassDef | None = None
    depth: int = 0
    """How many calls outwards from the loader's constructor it lies."""
    line: int = 1 << 30
    """Of the place; assignments behind it do not count in its function."""


def find_call(call: SourceCall, depth: int) -> tuple[ast.Call, Scope] | None:
    """The call at a place and the scope around it; ``None``: the file has changed, or cannot be read."""
    tree = parse_file(call.file)
    if tree is None:
        return None
    for node, function, kind in walk_with_scopes(tree):
        if isinstance(node, ast.Call) and call.span == (
            node.lineno, node.end_lineno, node.col_offset, node.end_col_offset,
        ):  # fmt: skip
            return node, Scope(call.file, tree, function, kind, depth, node.lineno)
    return None


def walk_with_scopes(
    node: ast.AST, function: Function | None = None, kind: ast.ClassDef | None = None
) -> Iterator[tuple[ast.AST, Function | None, ast.ClassDef | None]]:
    """Every node with the innermost function and the innermost class around it."""
    for child in ast.iter_child_nodes(node):
        yield child, function, kind
        if isinstance(child, _FUNCTIONS):
            yield from walk_with_scopes(child, child, kind)
        elif isinstance(child, ast.ClassDef):
            yield from walk_with_scopes(child, None, child)
        else:
            yield from walk_with_scopes(child, function, kind)


def list_statements(body: ast.AST) -> Iterator[ast.stmt]:
    """The statements of a function, class or module in their order, without those of functions and classes inside."""
    for child in ast.iter_child_nodes(body):
        if isinstance(child, ast.stmt):
            yield child
        if not isinstance(child, (*_FUNCTIONS, ast.ClassDef)):
            yield from list_statements(child)


def list_guarded(tree: ast.Module) -> list[ast.AST]:
    """All nodes below ``if __name__ == "__main__":``."""
    guards = [node for node in tree.body if isinstance(node, ast.If) and "__main__" in ast.unparse(node.test)]
    return [part for guard in guards for part in ast.walk(guard)]


def list_assigned(body: ast.AST, name: str) -> list[tuple[ast.stmt, ast.expr | None]]:
    """Statements that give a variable a value, each with the value; ``None``: the value is computed or unpacked."""
    assigned: list[tuple[ast.stmt, ast.expr | None]] = []
    for statement in list_statements(body):
        if isinstance(statement, ast.Assign):
            targets = statement.targets
            plain = any(isinstance(target, ast.Name) and target.id == name for target in targets)
            if plain or any(_stores(target, name) for target in targets):
                assigned.append((statement, statement.value if plain else None))
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            if isinstance(statement.target, ast.Name) and statement.target.id == name:
                assigned.append((statement, statement.value))
        elif isinstance(statement, ast.AugAssign | ast.For | ast.AsyncFor):
            if _stores(statement.target, name):
                assigned.append((statement, None))
        elif isinstance(statement, ast.With | ast.AsyncWith) and any(
            item.optional_vars is not None and _stores(item.optional_vars, name) for item in statement.items
        ):
            assigned.append((statement, None))
    return assigned


def _stores(target: ast.AST, name: str) -> bool:
    return any(
        isinstance(part, ast.Name) and part.id == name and isinstance(part.ctx, ast.Store) for part in ast.walk(target)
    )


def list_parameters(function: Function) -> list[str]:
    """Names of the parameters that may come by position, in their order; ``self`` among them."""
    arguments = function.args
    return [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]


def find_default(function: Function, name: str) -> ast.expr | None:
    """What a parameter is where the call does not say; ``None``: it has no default, or is no parameter."""
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    with_default = positional[len(positional) - len(arguments.defaults) :]
    for argument, value in zip(with_default, arguments.defaults, strict=True):
        if argument.arg == name:
            return value
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if argument.arg == name:
            return default
    return None


def is_parameter(function: Function, name: str) -> bool:
    """Whether a function has a parameter of this name, other than ``*args`` and ``**kwargs``."""
    return name in list_parameters(function) or any(argument.arg == name for argument in function.args.kwonlyargs)


def list_modules(tree: ast.Module, file: str, roots: Sequence[str]) -> dict[str, tuple[str, str | None]]:
    """Names that a file imports from the script's own files: local name -> (file, name there; ``None``: the module).

    Names that come from two places are left out: ``try: from local import N``, with another import behind ``except``.
    """
    imported: dict[str, set[tuple[str, str | None]]] = {}
    for name, place, inside in _list_imports(tree, file, roots):
        imported.setdefault(name, set()).add((place, inside))
    return {name: next(iter(places)) for name, places in imported.items() if len(places) == 1}


def _list_imports(tree: ast.Module, file: str, roots: Sequence[str]) -> Iterator[tuple[str, str, str | None]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                place = _module_file(alias.name, 0, file, roots)
                if place is not None:
                    yield alias.asname or alias.name, place, None
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                inside = f"{node.module}.{alias.name}" if node.module else alias.name
                module = _module_file(inside, node.level, file, roots)
                place = _module_file(node.module or "", node.level, file, roots)
                if module is not None:
                    yield alias.asname or alias.name, module, None
                elif place is not None:
                    yield alias.asname or alias.name, place, alias.name


def _module_file(name: str, level: int, file: str, roots: Sequence[str]) -> str | None:
    """The source file of a module of the script's; ``None``: it lies elsewhere, as libraries do."""
    parts = name.split(".") if name else []
    folders = [str(Path(file).parents[level - 1])] if level else [*roots]
    for folder in folders:
        base = Path(folder, *parts)
        for place in (base.with_name(f"{base.name}.py") if parts else base, base / "__init__.py"):
            if place.is_file():
                return str(place)
    return None


def list_files(calls: Sequence[SourceCall]) -> list[str]:
    """The script's own files: those on the way to the loader, and what they import, the nearest first."""
    roots = list_roots(calls)
    files = list(dict.fromkeys(call.file for call in calls))
    for file in files:  # grows meanwhile
        tree = parse_file(file)
        if tree is not None:
            places = dict.fromkeys(place for _, place, _ in _list_imports(tree, file, roots))
            files += [place for place in places if place not in files][: MAX_FILES - len(files)]
    return files


def list_roots(calls: Sequence[SourceCall]) -> list[str]:
    """Folders in which the script's own modules are looked for."""
    folders = [str(Path(call.file).parent) for call in calls]
    above = [str(Path(folder).parent) for folder in folders if Path(folder, "__init__.py").is_file()]
    return list(dict.fromkeys([*folders, *above]))
