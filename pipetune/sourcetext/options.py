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
from pipetune.sourcetext.command_options import find_value, find_word
from pipetune.sourcetext.config_files import has_config_key
from pipetune.sourcetext.declarations import (
    DEFINES,
    DeclaredOption,
    called_name,
    list_declared,
    list_file_calls,
)
from pipetune.sourcetext.hydra import find_hydra_key
from pipetune.sourcetext.namespaces import (
    changes_namespace,
    is_read_by_hand,
    is_read_from_file,
    sets_defaults,
)
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
    choice = _find_choice(argument, calls, value, words)
    return None if choice is None or choice.is_doubtful else choice.option


def is_set_by_option(argument: str, calls: Sequence[SourceCall], value: Any, words: Sequence[str]) -> bool:
    """Whether an option explains a loader's value: the command gives it, or it is the option's default."""
    choice = _find_choice(argument, calls, value, words)
    if choice is None or choice.option.override or not _has_value(choice.option, choice.declared, value, words):
        return False
    return find_value(choice.option, words) is not None or not sets_defaults(list_files(calls))


@dataclass(frozen=True, slots=True)
class _Choice:
    option: ScriptOption
    declared: DeclaredOption
    is_doubtful: bool
    """A configuration file may replace what the option gave."""


def _find_choice(argument: str, calls: Sequence[SourceCall], value: Any, words: Sequence[str]) -> _Choice | None:
    written = follow_argument(argument, calls, value)
    files = list_files(calls)
    if not calls:
        return None
    wanted: str | None = argument
    if written is None:
        declared = _list_trainer_options(argument, calls, files)
        assigned = _Assigned.NEVER
    else:
        wanted = written.name if written.by_default else _wanted(written.value)
        if wanted is None:
            return _choose_word(written, value, calls, words)
        declared = _declared_for(written, wanted, calls, files)
        assigned = _how_assigned(wanted, files, value)
        if is_read_from_file(written, wanted, files):
            declared = [entry for entry in declared if entry.override]
    if is_read_by_hand(files, words):
        return None
    if not declared and written is not None and (written.by_default or isinstance(written.value, ast.Attribute)):
        key = find_hydra_key(written.name if written.by_default else str(_wanted(written.value)), words, files)
        declared = [] if key is None else [DeclaredOption((key,), override=True)]
    distinct = {entry.words: entry for entry in declared}
    if not distinct and written is not None:
        return _choose_word(written, value, calls, words)
    if len(distinct) != 1 or assigned == _Assigned.ALWAYS:
        return None
    entry = next(iter(distinct.values()))
    if not entry.is_usable:
        return None
    option = ScriptOption(
        words=entry.words, program=calls[-1].file, override=entry.override, comes_first=entry.comes_first
    )
    if assigned != _Assigned.NEVER and not _has_value(option, entry, value, words):
        return None
    is_doubtful = not entry.override and changes_namespace(files) and has_config_key(wanted, words, files)
    return _Choice(option, entry, is_doubtful)


def _choose_word(written: Written, value: Any, calls: Sequence[SourceCall], words: Sequence[str]) -> _Choice | None:
    """The command's own word for a setting that the script reads without a parser: ``--num_workers=4``."""
    key = find_word(written.name if written.by_default else _wanted(written.value) or written.name, words)
    is_plain = isinstance(written.value, ast.Constant) or _wanted(written.value) is not None
    if key is None or not is_plain:
        return None
    override = any(word.startswith(f"{key}=") for word in words)
    option = ScriptOption(words=(key,), program=calls[-1].file, override=override)
    is_given = find_value(option, words) == str(value)
    return _Choice(option, DeclaredOption((key,), override=override), is_doubtful=False) if is_given else None


def _has_value(option: ScriptOption, declared: DeclaredOption, value: Any, words: Sequence[str]) -> bool:
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


def _declared_for(
    written: Written, wanted: str, calls: Sequence[SourceCall], files: Sequence[str]
) -> list[DeclaredOption]:
    """Options of this name: in the nearest file that has any."""
    overrides = list(_list_by_path(written, calls))
    if overrides:
        return overrides
    for file in dict.fromkeys([written.scope.file, *files]):
        tree = parse_file(file)
        if tree is None:
            continue
        declared = [*list_declared(tree, wanted, files)]
        declared += _list_by_field(tree, wanted, files) if isinstance(written.value, ast.Attribute) else []
        if file == written.scope.file:
            declared += _list_by_parameter(written, wanted, files)
        if declared:
            return declared
    return []


def _list_by_field(tree: ast.Module, wanted: str, files: Sequence[str]) -> Iterable[DeclaredOption]:
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
                yield DeclaredOption((f"--{wanted.replace('_', '-') if dashes else wanted}",), default)


def _list_field_parsers(kind: str, files: Sequence[str]) -> set[str]:
    """Parsers that are given a class."""
    return {
        called_name(call)
        for file in files
        for call in list_file_calls(file)
        if called_name(call) in _FIELD_PARSERS
        and any(isinstance(part, ast.Name) and part.id == kind for value in call.args for part in ast.walk(value))
    }


def _list_by_parameter(written: Written, wanted: str, files: Sequence[str]) -> Iterable[DeclaredOption]:
    """A parameter of a function that typer, fire, tyro or jsonargparse runs; of a class that LightningCLI makes."""
    scope = written.scope
    function = scope.function if written.by_default or isinstance(written.value, ast.Name) else _constructor(scope)
    if function is None or not is_parameter(function, wanted):
        return
    if scope.kind is not None and function.args.args and function.args.args[0].arg == "self":
        makers = [node for file in files for node in list_file_calls(file) if called_name(node) == "LightningCLI"]
        if makers:
            yield DeclaredOption((f"--{_group(scope.kind)}.{wanted}",), find_default(function, wanted))
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
    yield DeclaredOption(stated or (f"--{name}",), plain)


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
        name = called_name(decorator) if isinstance(decorator, ast.Call) else getattr(decorator, "attr", "")
        if name in ("command", "callback") and not _has_click_options(function):
            return name
    for place in dict.fromkeys([file, *files]):
        for call in list_file_calls(place):
            taken = [word.id for word in call.args if isinstance(word, ast.Name)]
            if called_name(call) in _RUNNERS and function.name in taken:
                return called_name(call)
    return None


def _has_click_options(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(isinstance(word, ast.Call) and called_name(word) == "option" for word in function.decorator_list)


def _stated_flags(function: Function, name: str) -> tuple[str, ...]:
    """Options that ``typer.Option("--workers", "-j")`` states, in the default or in ``Annotated``."""
    arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    note = next((argument.annotation for argument in arguments if argument.arg == name), None)
    places = [part for part in (note, find_default(function, name)) if part is not None]
    flags = [
        word.value
        for place in places
        for node in ast.walk(place)
        if isinstance(node, ast.Call) and called_name(node) == "Option"
        for word in node.args
        if isinstance(word, ast.Constant) and isinstance(word.value, str) and word.value.startswith("-")
    ]
    return tuple(sorted(flags, key=lambda word: not word.startswith("--")))


def _list_by_path(written: Written, calls: Sequence[SourceCall]) -> Iterable[DeclaredOption]:
    """``cfg.data.num_workers`` in the function that ``hydra.main`` runs, or in one that it calls with a part of it."""
    path, scope = _path(written.value), written.scope
    while path is not None and scope.function is not None and not isinstance(scope.function, ast.Lambda):
        function = scope.function
        if not is_parameter(function, path[0]):
            return
        if any("hydra" in (text := ast.unparse(word)) or "config_name" in text for word in function.decorator_list):
            if len(path) > 1:
                yield DeclaredOption((".".join(path[1:]),), None, override=True)
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


def _list_trainer_options(argument: str, calls: Sequence[SourceCall], files: Sequence[str]) -> list[DeclaredOption]:
    """An option of HfArgumentParser, for a loader that the Trainer of Transformers makes."""
    name = TRAINER_NAMES.get(argument)
    parsed = any(
        called_name(node) in ("HfArgumentParser", "TrlParser") and "TrainingArguments" in ast.unparse(node)
        for file in files
        for node in list_file_calls(file)
    )
    made = find_call(calls[0], 0)
    by_trainer = made is not None and called_name(made[0]) in ("train", "get_train_dataloader")
    return [DeclaredOption((f"--{name}",))] if name is not None and parsed and by_trainer else []


class _Assigned:
    """Whether the script gives the option's name another value."""

    NEVER, SOMETIMES, ALWAYS = range(3)


def _how_assigned(wanted: str, files: Sequence[str], value: Any) -> int:
    """Whether statements compute the value anew: never, in a branch only, or always.

    A branch may not have run. Whether it has is told by the value that the loader got, unless the branch gives just
    that.
    """
    answer = _Assigned.NEVER
    for file in files:
        tree = parse_file(file)
        for statement, in_branch in () if tree is None else _walk_branches(tree):
            if _is_computed(statement, wanted):
                given = getattr(statement, "value", None)
                has_run = isinstance(given, ast.Constant) and given.value == value
                answer = max(answer, _Assigned.SOMETIMES if in_branch and not has_run else _Assigned.ALWAYS)
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
