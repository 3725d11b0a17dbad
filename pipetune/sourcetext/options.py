"""The script's own option for a setting: ``--workers`` sets ``num_workers=args.workers``.

Known are argparse, click, typer, fire, absl, Hydra, jsonargparse and LightningCLI, tyro, simple-parsing and
HfArgumentParser. An option is offered only where its value is what the loader got.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pipetune.records.script import ScriptOption, SourceCall
from pipetune.sourcetext.callers import find_given
from pipetune.sourcetext.command_options import find_value
from pipetune.sourcetext.hydra import find_hydra_key
from pipetune.sourcetext.origins import TRAINER_NAMES, follow_argument
from pipetune.sourcetext.scope import (
    Function,
    Scope,
    find_call,
    find_default,
    is_parameter,
    list_files,
    parse_file,
)
from pipetune.sourcetext.written import Written

#: What makes options of a function's parameters -> how a parameter's name becomes an option.
_RUNNERS = {"run": "-", "command": "-", "callback": "-", "cli": "-", "Fire": "_", "CLI": "_", "auto_cli": "_"}
#: What makes options of the fields of a dataclass.
_FIELD_PARSERS = frozenset(
    {"HfArgumentParser", "H4ArgumentParser", "TrlParser", "add_arguments", "parse", "cli", "CLI"}
)
_DEFINES = ("DEFINE_integer", "DEFINE_bool", "DEFINE_boolean", "DEFINE_float", "DEFINE_string")


@dataclass(frozen=True, slots=True)
class _Declared:
    """An option as the text declares it."""

    words: tuple[str, ...]
    default: ast.expr | None = None
    override: bool = False


def find_option(
    argument: str, calls: Sequence[SourceCall], value: Any, words: Sequence[str] = ()
) -> ScriptOption | None:
    """The option by which a script sets a loader's argument; ``None``: there is none that can be told from its text.

    Args:
        argument: under the name that the constructor has for it.
        calls: the constructor's call and, outwards, those that led to it.
        value: that the loader has.
        words: of the command.
    """
    written = follow_argument(argument, calls, value)
    files = list_files(calls)
    if not calls:
        return None
    if written is None:
        declared = _list_trainer_options(argument, calls, files)
        assigned = _Assigned.NEVER
    else:
        wanted = written.name if written.by_default else _wanted(written.value)
        if wanted is None:
            return None
        declared = _declared_for(written, wanted, calls, files)
        assigned = _how_assigned(wanted, files)
    if not declared and written is not None and (written.by_default or isinstance(written.value, ast.Attribute)):
        key = find_hydra_key(written.name if written.by_default else str(_wanted(written.value)), words, files)
        declared = [] if key is None else [_Declared((key,), override=True)]
    distinct = {entry.words: entry for entry in declared}
    if len(distinct) != 1 or assigned == _Assigned.ALWAYS:
        return None
    entry = next(iter(distinct.values()))
    option = ScriptOption(words=entry.words, program=calls[-1].file, override=entry.override)
    return option if assigned == _Assigned.NEVER or _has_value(option, entry, value, words) else None


def _has_value(option: ScriptOption, declared: _Declared, value: Any, words: Sequence[str]) -> bool:
    """Whether the loader has what the command says, or what the option is by default."""
    given = find_value(option, words)
    if given is not None:
        return given == str(value)
    return isinstance(declared.default, ast.Constant) and declared.default.value == value


def _wanted(value: ast.expr) -> str | None:
    """The name by which an expression takes an option's value: of an attribute, a variable or a key."""
    if isinstance(value, ast.Attribute):
        return value.attr if not (isinstance(value.value, ast.Name) and value.attr == "value") else value.value.id
    if isinstance(value, ast.Name):
        return value.id
    if isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Constant):
        return str(value.slice.value)
    return None


def _declared_for(written: Written, wanted: str, calls: Sequence[SourceCall], files: Sequence[str]) -> list[_Declared]:
    """Options of this name: in the nearest file that has any."""
    overrides = list(_list_by_path(written, calls))
    if overrides:
        return overrides
    for file in dict.fromkeys([written.scope.file, *files]):
        tree = parse_file(file)
        if tree is None:
            continue
        declared = [*_list_by_call(tree, wanted)]
        declared += _list_by_field(tree, wanted, files) if isinstance(written.value, ast.Attribute) else []
        if file == written.scope.file:
            declared += _list_by_parameter(written, wanted, files)
        if declared:
            return declared
    return []


def _list_by_call(tree: ast.Module, wanted: str) -> Iterable[_Declared]:
    """``add_argument("--workers")`` of argparse, ``option("--workers")`` of click, ``DEFINE_integer("workers")``."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = _called(node)
        strings = [word.value for word in node.args if isinstance(word, ast.Constant) and isinstance(word.value, str)]
        given = {word.arg: word.value for word in node.keywords}
        if name in ("add_argument", "option"):
            flags = sorted(
                (word for word in strings if word.startswith("-")), key=lambda word: not word.startswith("--")
            )
            if not flags:
                continue
            dest = given.get("dest")
            stated = dest.value if isinstance(dest, ast.Constant) else None
            plain = [word for word in strings if not word.startswith("-")] if name == "option" else []
            known_as = stated or (plain[0] if plain else flags[0].lstrip("-").replace("-", "_"))
            if known_as == wanted:
                yield _Declared(tuple(flags), given.get("default"))
        elif name in _DEFINES and strings:
            default = node.args[1] if len(node.args) > 1 else given.get("default")
            if strings[0] == wanted or _is_assigned_to(tree, node, wanted):
                yield _Declared((f"--{strings[0]}",), default)


def _is_assigned_to(tree: ast.Module, call: ast.Call, name: str) -> bool:
    return any(
        isinstance(node, ast.Assign) and node.value is call
        and any(isinstance(target, ast.Name) and target.id == name for target in node.targets)
        for node in ast.walk(tree)
    )  # fmt: skip


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _list_by_field(tree: ast.Module, wanted: str, files: Sequence[str]) -> Iterable[_Declared]:
    """A field of a class from which a parser makes its options."""
    for node in ast.walk(tree):
        parsers = _list_field_parsers(node.name, files) if isinstance(node, ast.ClassDef) else set()
        if not isinstance(node, ast.ClassDef) or not parsers:
            continue
        for part in node.body:
            if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name) and part.target.id == wanted:
                default = part.value
                if isinstance(default, ast.Call):
                    default = next((word.value for word in default.keywords if word.arg == "default"), None)
                dashes = parsers == {"cli"}
                yield _Declared((f"--{wanted.replace('_', '-') if dashes else wanted}",), default)


def _list_field_parsers(kind: str, files: Sequence[str]) -> set[str]:
    """Parsers that are given a class."""
    return {
        _called(call)
        for file in files
        for call in _calls_in(file)
        if _called(call) in _FIELD_PARSERS
        and any(isinstance(part, ast.Name) and part.id == kind for value in call.args for part in ast.walk(value))
    }


def _calls_in(file: str) -> Iterable[ast.Call]:
    tree = parse_file(file)
    return () if tree is None else (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def _list_by_parameter(written: Written, wanted: str, files: Sequence[str]) -> Iterable[_Declared]:
    """A parameter of a function that typer, fire, tyro or jsonargparse runs; of a class that LightningCLI makes."""
    scope = written.scope
    function = scope.function if written.by_default or isinstance(written.value, ast.Name) else _constructor(scope)
    if function is None or not is_parameter(function, wanted):
        return
    if scope.kind is not None and function.args.args and function.args.args[0].arg == "self":
        makers = [node for file in files for node in _calls_in(file) if _called(node) == "LightningCLI"]
        if makers:
            yield _Declared((f"--{_group(scope.kind)}.{wanted}",), find_default(function, wanted))
        return
    runner = _runner(function, scope.file, files)
    if runner is None:
        return
    default = find_default(function, wanted)
    stated = _stated_flags(function, wanted)
    name = wanted.replace("_", _RUNNERS[runner])
    plain = None if isinstance(default, ast.Call) else default
    if isinstance(default, ast.Call) and default.args:
        plain = default.args[0]
    yield _Declared(stated or (f"--{name}",), plain)


def _constructor(scope: Scope) -> Function | None:
    body = () if scope.kind is None else scope.kind.body
    return next((part for part in body if isinstance(part, ast.FunctionDef) and part.name == "__init__"), None)


def _group(kind: ast.ClassDef) -> str:
    """``data`` for a LightningDataModule, ``model`` for a LightningModule."""
    bases = " ".join(ast.unparse(base) for base in kind.bases)
    return "data" if "Data" in bases else "model"


def _runner(function: Function, file: str, files: Sequence[str]) -> str | None:
    """What runs a function as a command line: its decorator, or a call that takes it."""
    if isinstance(function, ast.Lambda):
        return None
    for decorator in function.decorator_list:
        name = _called(decorator) if isinstance(decorator, ast.Call) else getattr(decorator, "attr", "")
        if name in ("command", "callback") and not _has_click_options(function):
            return name
    for place in dict.fromkeys([file, *files]):
        for call in _calls_in(place):
            taken = [word.id for word in call.args if isinstance(word, ast.Name)]
            if _called(call) in _RUNNERS and function.name in taken:
                return _called(call)
    return None


def _has_click_options(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(isinstance(word, ast.Call) and _called(word) == "option" for word in function.decorator_list)


def _stated_flags(function: Function, name: str) -> tuple[str, ...]:
    """Options that ``typer.Option("--workers", "-j")`` states, in the default or in ``Annotated``."""
    arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    note = next((argument.annotation for argument in arguments if argument.arg == name), None)
    places = [part for part in (note, find_default(function, name)) if part is not None]
    flags = [
        word.value
        for place in places
        for node in ast.walk(place)
        if isinstance(node, ast.Call) and _called(node) == "Option"
        for word in node.args
        if isinstance(word, ast.Constant) and isinstance(word.value, str) and word.value.startswith("-")
    ]
    return tuple(sorted(flags, key=lambda word: not word.startswith("--")))


def _list_by_path(written: Written, calls: Sequence[SourceCall]) -> Iterable[_Declared]:
    """``cfg.data.num_workers`` in the function that ``hydra.main`` runs, or in one that it calls with a part of it."""
    path, scope = _path(written.value), written.scope
    while path is not None and scope.function is not None and not isinstance(scope.function, ast.Lambda):
        function = scope.function
        if not is_parameter(function, path[0]):
            return
        if any("hydra" in (text := ast.unparse(word)) or "config_name" in text for word in function.decorator_list):
            if len(path) > 1:
                yield _Declared((".".join(path[1:]),), None, override=True)
            return
        given = find_given(path[0], scope, calls)
        if given is None:
            return
        before = _path(given.value)
        path, scope = None if before is None else [*before, *path[1:]], given.scope


def _path(value: ast.expr) -> list[str] | None:
    if isinstance(value, ast.Name):
        return [value.id]
    if isinstance(value, ast.Attribute):
        before, name = _path(value.value), value.attr
    elif isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Constant):
        before, name = _path(value.value), str(value.slice.value)
    else:
        return None
    return None if before is None else [*before, name]


def _list_trainer_options(argument: str, calls: Sequence[SourceCall], files: Sequence[str]) -> list[_Declared]:
    """An option of HfArgumentParser, for a loader that the Trainer of Transformers makes."""
    name = TRAINER_NAMES.get(argument)
    parsed = any(
        _called(node) in ("HfArgumentParser", "TrlParser") and "TrainingArguments" in ast.unparse(node)
        for file in files
        for node in _calls_in(file)
    )
    made = find_call(calls[0], 0)
    by_trainer = made is not None and _called(made[0]) in ("train", "get_train_dataloader")
    return [_Declared((f"--{name}",))] if name is not None and parsed and by_trainer else []


class _Assigned:
    """Whether the script gives the option's name another value."""

    NEVER, SOMETIMES, ALWAYS = range(3)


def _how_assigned(wanted: str, files: Sequence[str]) -> int:
    """Whether statements compute the value anew: never, in a branch only, or always.

    A branch may not have run. Whether it has is told by the value that the loader got.
    """
    answer = _Assigned.NEVER
    for file in files:
        tree = parse_file(file)
        for statement, in_branch in () if tree is None else _walk_branches(tree):
            if _is_computed(statement, wanted):
                answer = max(answer, _Assigned.SOMETIMES if in_branch else _Assigned.ALWAYS)
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
    if isinstance(value, ast.Call) and _called(value) in _DEFINES:
        return False
    parts = [part for target in targets for part in ast.walk(target)]
    return any(
        getattr(part, "attr", getattr(part, "id", None)) == wanted and isinstance(getattr(part, "ctx", None), ast.Store)
        for part in parts
    )
