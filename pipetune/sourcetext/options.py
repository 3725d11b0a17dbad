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
from pipetune.sourcetext.assignments import Assigned, tell_assigned
from pipetune.sourcetext.callers import find_given
from pipetune.sourcetext.command_options import find_value, find_word
from pipetune.sourcetext.config_files import has_config_key
from pipetune.sourcetext.declarations import (
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
from pipetune.sourcetext.parameters import list_by_field, list_by_parameter
from pipetune.sourcetext.scope import (
    find_call,
    is_parameter,
    list_files,
    parse_file,
)
from pipetune.sourcetext.written import Written


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
    if find_value(choice.option, words) is not None:
        return True
    return not choice.declared.reads_files and not sets_defaults(list_files(calls))


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
    wanted = argument
    if written is None:
        declared = _list_trainer_options(argument, calls, files)
        assigned = Assigned.NEVER
    else:
        name = written.name if written.by_default else _wanted(written.value)
        if name is None:
            return _choose_word(written, value, calls, words)
        wanted = name
        declared = _declared_for(written, wanted, calls, files)
        assigned = tell_assigned(wanted, files, value)
        if is_read_from_file(written, wanted, files):
            declared = [entry for entry in declared if entry.override]
    if is_read_by_hand(files, words):
        return None
    if not declared and written is not None and (written.by_default or isinstance(written.value, ast.Attribute)):
        key = find_hydra_key(
            wanted, words, files, written.scope.kind.name if written.by_default and written.scope.kind else None
        )
        declared = [] if key is None else [DeclaredOption((key,), override=True)]
    distinct = {entry.words: entry for entry in declared}
    if not distinct and written is not None:
        return _choose_word(written, value, calls, words)
    if len(distinct) != 1 or assigned == Assigned.ALWAYS:
        return None
    entry = next(iter(distinct.values()))
    if not entry.is_usable:
        return None
    option = ScriptOption(
        words=entry.words, program=calls[-1].file, override=entry.override, comes_first=entry.comes_first
    )
    if assigned != Assigned.NEVER and not _has_value(option, entry, value, words):
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
        declared += list_by_field(tree, wanted, files) if isinstance(written.value, ast.Attribute) else []
        if file == written.scope.file:
            declared += list_by_parameter(written, wanted, files)
        if declared:
            return declared
    return []


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
    is_option = name is not None and parsed and is_made_by_trainer(calls)
    return [DeclaredOption((f"--{name}",))] if is_option else []


def is_made_by_trainer(calls: Sequence[SourceCall]) -> bool:
    """Whether the Trainer of Transformers made a loader, and no call of the script's own."""
    made = find_call(calls[0], 0) if calls else None
    if made is None or called_name(made[0]) not in ("train", "get_train_dataloader"):
        return False
    return any("TrainingArguments" in ast.unparse(parse_file(file) or ast.Module([], [])) for file in list_files(calls))
