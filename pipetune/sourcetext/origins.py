"""Follows an argument of a loader to where its value is written: through parameters, dictionaries, imports, attributes.

A value that is followed to a constant is compared with the one that the loader has; where they differ, another place
decides, and the constructor's own call is named instead.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pipetune.records.script import SettingOrigin, SourceCall
from pipetune.sourcetext.attributes import list_calls, step_from_attribute
from pipetune.sourcetext.callers import find_caller, find_given, find_position, find_written
from pipetune.sourcetext.command_options import find_word
from pipetune.sourcetext.config_files import find_in_config
from pipetune.sourcetext.dictionaries import list_changes, list_defaults, list_takers
from pipetune.sourcetext.environment import has_variable
from pipetune.sourcetext.expressions import find_whole_number, list_names, may_give
from pipetune.sourcetext.only_setting import find_only_setting
from pipetune.sourcetext.rivals import has_variable_rival, is_bound_between, is_stored
from pipetune.sourcetext.scope import (
    Scope,
    find_call,
    find_default,
    is_parameter,
    list_assigned,
    list_files,
    list_modules,
    list_roots,
    parse_file,
)
from pipetune.sourcetext.written import Written

#: Argument -> its place among the positional ones of torch's ``DataLoader`` (from 0).
_POSITIONS = {"batch_size": 1, "num_workers": 5, "pin_memory": 7}
#: So many steps are followed at most.
_MAX_STEPS = 24
#: What the Trainer of Transformers calls them, whose loaders no call of the script makes.
TRAINER_NAMES = {
    name: f"dataloader_{name}" for name in ("num_workers", "prefetch_factor", "pin_memory", "persistent_workers")
} | {"batch_size": "per_device_train_batch_size"}


class _UnclearError(Exception):
    """Several places may have given a loader the value."""


@dataclass(frozen=True, slots=True)
class _Search:
    calls: Sequence[SourceCall]
    roots: Sequence[str]
    files: Sequence[str]
    value: Any
    """That the loader has; of several places only those count that may have given it."""
    steps: list[None]
    """As many as were made."""

    def begin_step(self) -> bool:
        self.steps.append(None)
        return len(self.steps) <= _MAX_STEPS


def follow_argument(argument: str, calls: Sequence[SourceCall], value: Any) -> Written | None:
    """Where the value of a loader's argument is written.

    Args:
        argument: under the name that the constructor has for it.
        calls: the constructor's call and, outwards, those that led to it.
        value: that the loader has.

    Returns:
        ``None``: the text does not tell, or nothing is written.
    """
    if not calls:
        return None
    place = find_call(calls[0], 0)
    if place is None:
        return None
    search = _Search(calls, list_roots(calls), list_files(calls), value, [])
    call, scope = place
    try:
        written = _from_call(search, call, scope, argument, _POSITIONS.get(argument))
    except _UnclearError:
        return None
    return written or _from_trainer(search, argument)


def find_origin(
    argument: str, calls: Sequence[SourceCall], value: Any, words: Sequence[str] = ()
) -> SettingOrigin | None:
    """Where the value of a loader's argument is written, if that is not in the call that makes the loader.

    Args:
        value: that the loader has.
        words: of the command, which may name configuration files.
    """
    files = list_files(calls)
    written = follow_argument(argument, calls, value)
    if written is None:  # it may come in a dictionary that was read from a file
        return _find_hidden(argument, calls, value, words, files)
    names = [written.name] if written.by_default else list_names(written.value)
    is_constant = not names
    if names:
        kind = written.scope.kind.name if written.by_default and written.scope.kind is not None else None
        configured = find_in_config(names, value, words, files, kind)
        if configured is not None and is_stored(names[-1], value, files):
            return None
        configured = configured or find_only_setting(names, value, files)
        if configured is not None:
            is_given = find_word(names[-1], words) is not None or has_variable(names[-1], value)
            return None if is_given else configured
    if (written.scope.file, written.value.lineno) == _line_of(calls, written) or not may_give(written.value, value):
        return None
    if (is_constant or written.by_default) and find_word(written.name, words) is not None:
        return None
    if is_constant and has_variable(written.name, value):
        return None
    if is_constant and _is_replaced(written.scope.tree):
        configured = find_in_config([written.name], value, words, files)
        if configured is not None:
            return configured
    return SettingOrigin(
        file=written.scope.file, line=written.value.lineno, name=written.name, text=ast.unparse(written.value),
        also=written.also,
    )  # fmt: skip


def _find_hidden(
    argument: str, calls: Sequence[SourceCall], value: Any, words: Sequence[str], files: Sequence[str]
) -> SettingOrigin | None:
    """The line of a configuration file from which an argument came in a dictionary: ``**config["loader"]``."""
    place = find_call(calls[0], 0) if calls else None
    taken = [] if place is None else [word.value for word in place[0].keywords if word.arg is None]
    if not taken or find_word(argument, words) is not None:
        return None
    return find_in_config([*list_names(taken[-1])[1:], argument], value, words, files)


def _is_replaced(tree: ast.Module) -> bool:
    """Whether a module's variables may be set by text that it runs, as of a configuration: ``exec``, ``globals()``."""
    return any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("exec", "globals")
        for node in ast.walk(tree)
    )


def _line_of(calls: Sequence[SourceCall], written: Written) -> tuple[str, int]:
    """The constructor's own call, as a place: any of its lines is."""
    first, last, _, _ = calls[0].span
    return calls[0].file, written.value.lineno if first <= written.value.lineno <= last else first


def _from_call(search: _Search, call: ast.Call, scope: Scope, name: str, position: int | None) -> Written | None:
    value = find_written(call, name, position)
    if value is not None:
        return _from_expression(search, Written(name, value, scope))
    for keyword in reversed(call.keywords):
        if keyword.arg is None:
            inside = _from_mapping(search, keyword.value, scope, name)
            if inside is not None:
                return inside
    return None


def _from_expression(search: _Search, here: Written) -> Written:
    """The place where an expression's value comes from; itself where that cannot be followed."""
    if not search.begin_step():
        return here
    value, scope = here.value, here.scope
    inner = find_whole_number(value)
    if inner is not None:
        return _from_expression(search, Written(here.name, inner, scope))
    if isinstance(value, ast.Name):
        return (None if is_bound_between(value, scope) else _from_name(search, value.id, here)) or here
    if isinstance(value, ast.Attribute):
        before = step_from_attribute(value, scope, search.files, search.roots, search.value, search.calls[-1].file)
        return here if before is None else _from_expression(search, before)
    if isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Constant):
        inside = _from_mapping(search, value.value, scope, str(value.slice.value))
        return here if inside is None else inside
    return here


def _from_name(search: _Search, name: str, here: Written) -> Written | None:
    scope = here.scope
    if scope.function is not None:
        assigned = [] if isinstance(scope.function, ast.Lambda) else _before(scope.function, name, scope)
        if is_parameter(scope.function, name):
            return None if assigned else _from_caller(search, name, scope)
        if assigned:
            return _from_only(search, assigned, name, scope)
    assigned = list_assigned(scope.tree, name)
    if assigned:
        if has_variable_rival(name, scope, search.files, search.roots, search.value):
            return None
        return _from_only(search, assigned, name, Scope(scope.file, scope.tree, depth=scope.depth))
    return _from_import(search, name, scope)


def _before(function: ast.AST, name: str, scope: Scope) -> list[tuple[ast.stmt, ast.expr | None]]:
    return [pair for pair in list_assigned(function, name) if pair[0].lineno <= scope.line]


def _from_only(
    search: _Search, assigned: Sequence[tuple[ast.stmt, ast.expr | None]], name: str, scope: Scope
) -> Written | None:
    """The value of a variable that is assigned once; of several assignments any may be the one that counts."""
    value = assigned[0][1]
    if len(assigned) != 1 or value is None:
        return None
    return _from_expression(search, Written(name, value, replace(scope, line=value.lineno)))


def _from_import(search: _Search, name: str, scope: Scope) -> Written | None:
    place, inside = list_modules(scope.tree, scope.file, search.roots).get(name, ("", None))
    tree = parse_file(place) if place else None
    if tree is None or inside is None:
        return None
    return _from_only(search, list_assigned(tree, inside), inside, Scope(place, tree, depth=len(search.calls)))


def _from_caller(search: _Search, name: str, scope: Scope) -> Written | None:
    """What the call of the function around a place gives for a parameter; else the parameter's default."""
    function = scope.function
    assert function is not None
    place = find_caller(scope, search.calls)
    if place is None:
        return None
    call, outside = place
    given = _from_call(search, call, outside, name, find_position(name, call, scope))
    unpacked = any(keyword.arg is None for keyword in call.keywords)
    if given is not None or unpacked or any(isinstance(part, ast.Starred) for part in call.args):
        return given
    default = find_default(function, name)
    return None if default is None else Written(name, default, scope)


def _from_trainer(search: _Search, argument: str) -> Written | None:
    """What the only call of ``TrainingArguments``, or of a class like it, says for a loader that a trainer makes."""
    name = TRAINER_NAMES.get(argument)
    kinds = ("TrainingArguments", "Seq2SeqTrainingArguments", "SFTConfig", "DPOConfig")
    calls = [pair for kind in kinds for pair in list_calls(kind, search.files, search.calls[-1].file)]
    if name is None or len(calls) != 1:
        return None
    call, scope = calls[0]
    return _from_call(search, call, scope, name, None)


def _from_mapping(search: _Search, value: ast.expr, scope: Scope, name: str) -> Written | None:
    """The value of a key in the dictionary that an expression makes."""
    if not search.begin_step():
        return None
    if isinstance(value, ast.Dict):
        for key, item in reversed(list(zip(value.keys, value.values, strict=True))):
            if isinstance(key, ast.Constant) and key.value == name:
                return _from_expression(search, Written(name, item, scope))
            if key is None:
                inside = _from_mapping(search, item, scope, name)
                if inside is not None:
                    return inside
    elif isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "dict":
        inner = [_from_mapping(search, part, scope, name) for part in value.args]
        return _from_call(search, value, scope, name, None) or next((part for part in inner if part), None)
    elif isinstance(value, ast.IfExp):
        arms = [_from_mapping(search, arm, scope, name) for arm in (value.body, value.orelse)]
        return _choose(search, [arm for arm in arms if arm is not None])
    elif isinstance(value, ast.BinOp) and isinstance(value.op, ast.BitOr):
        right = _from_mapping(search, value.right, scope, name)
        return right or _from_mapping(search, value.left, scope, name)
    elif isinstance(value, ast.Name):
        return _from_named_mapping(search, value.id, scope, name)
    return None


def _from_named_mapping(search: _Search, variable: str, scope: Scope, name: str) -> Written | None:
    function = scope.function
    if function is not None and function.args.kwarg is not None and function.args.kwarg.arg == variable:
        return _from_changes(search, function, variable, scope, name, before=lambda: _from_caller(search, name, scope))
    if function is not None and is_parameter(function, variable):
        return _from_changes(
            search, function, variable, scope, name, before=lambda: _from_given(search, variable, scope, name)
        )
    if function is not None and list_assigned(function, variable):
        return _from_changes(search, function, variable, scope, name)
    outside = Scope(scope.file, scope.tree, depth=scope.depth)
    return _from_changes(search, scope.tree, variable, outside, name, scope.line)


def _from_given(search: _Search, variable: str, scope: Scope, name: str) -> Written | None:
    """The value of a key in the dictionary that a call gives for a parameter."""
    given = find_given(variable, scope, search.calls)
    return None if given is None else _from_mapping(search, given.value, given.scope, name)


def _from_changes(
    search: _Search, body: ast.AST, variable: str, scope: Scope, name: str, line: int | None = None,
    before: Callable[[], Written | None] = lambda: None,
) -> Written | None:  # fmt: skip
    """The last of what a dictionary is made from and changed with that has a key.

    Args:
        before: finds the key in what the dictionary holds before the first of its changes.
    """
    places = []
    for change in list_changes(body, variable, scope.line):
        inside = _from_part(search, change.value, scope, name)
        if inside is not None:
            places.append(inside)
            if change.is_certain:
                return _with_takers(_choose(search, places), body, variable, scope.line if line is None else line)
    earlier = before()
    if earlier is not None:
        return _choose(search, [*places, earlier])
    for default in list_defaults(body, variable, scope.line):
        inside = _from_part(search, default, scope, name)
        places += [] if inside is None else [inside]
    return _with_takers(_choose(search, places), body, variable, scope.line if line is None else line)


def _choose(search: _Search, places: Sequence[Written]) -> Written | None:
    """The only one of several places that may have given the loader its value.

    Raises:
        _UnclearError: several may have.
    """
    possible = [place for place in places if may_give(place.value, search.value)]
    if len(possible) > 1:
        raise _UnclearError
    return next(iter(possible or places), None)


def _with_takers(inside: Written | None, body: ast.AST, variable: str, line: int) -> Written | None:
    if inside is None:
        return None
    return replace(inside, also=inside.also or list_takers(body, variable, line))


def _from_part(search: _Search, part: ast.expr, scope: Scope, name: str) -> Written | None:
    place = replace(scope, line=part.lineno)
    if isinstance(part, ast.Call):
        return _from_call(search, part, place, name, None) or next(
            (inside for value in part.args if (inside := _from_mapping(search, value, place, name))), None
        )
    return _from_mapping(search, part, place, name)
