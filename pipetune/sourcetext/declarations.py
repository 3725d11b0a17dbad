"""Options that a script declares one by one: ``add_argument`` of argparse, ``option`` of click, absl's flags."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pipetune.sourcetext.scope import parse_file

#: absl's functions that declare a flag.
DEFINES = ("DEFINE_integer", "DEFINE_bool", "DEFINE_boolean", "DEFINE_float", "DEFINE_string")
_PARSES = ("parse_args", "parse_known_args", "parse_intermixed_args", "parse_known_intermixed_args")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True)
class DeclaredOption:
    """An option as the text declares it."""

    words: tuple[str, ...]
    default: ast.expr | None = None
    override: bool = False
    comes_first: bool = False
    """It has to stand before the other words: behind them it would be a subcommand's, or part of the rest."""
    reads_files: bool = False
    """Its parser reads configuration files, too, which count more than the default."""
    is_usable: bool = True
    """``False``: the script does not parse its command line with it, or takes certain values only."""


def list_declared(tree: ast.Module, wanted: str, files: Sequence[str]) -> Iterable[DeclaredOption]:
    """Options of a file whose value has this name.

    Args:
        files: of the script.
    """
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = called_name(node)
        strings = [word.value for word in node.args if isinstance(word, ast.Constant) and isinstance(word.value, str)]
        given = {word.arg: word.value for word in node.keywords}
        if name in ("add_argument", "option"):
            flags = sorted(
                (word for word in strings if word.startswith("-")), key=lambda word: not word.startswith("--")
            )
            if not flags or _destination(name, flags, strings, given) != wanted:
                continue
            place = _place_click(tree, node) if name == "option" else _place_argparse(tree, node, files)
            is_usable = place is not None and "choices" not in given
            yield DeclaredOption(tuple(flags), given.get("default"), comes_first=bool(place), is_usable=is_usable)
        elif name in DEFINES and strings:
            default = node.args[1] if len(node.args) > 1 else given.get("default")
            if strings[0] == wanted or _is_assigned_to(tree, node, wanted):
                yield DeclaredOption((f"--{strings[0]}",), default)


def called_name(call: ast.Call) -> str:
    """The last name of what is called: ``add_argument`` of ``group.add_argument(...)``."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def list_file_calls(file: str) -> Iterable[ast.Call]:
    """All calls in a source file."""
    tree = parse_file(file)
    return () if tree is None else (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def _destination(
    name: str, flags: Sequence[str], strings: Sequence[str], given: dict[str | None, ast.expr]
) -> str | None:
    """The name under which a parser gives an option's value."""
    stated = given.get("dest")
    if isinstance(stated, ast.Constant):
        return str(stated.value)
    plain = [word for word in strings if not word.startswith("-")] if name == "option" else []
    return plain[0] if plain else flags[0].lstrip("-").replace("-", "_")


def _place_click(tree: ast.Module, option: ast.Call) -> bool | None:
    """Whether an option of click's is one of a group of commands, so that it comes first."""
    if "allow_interspersed_args" in ast.unparse(tree):
        return True
    return any(
        option in function.decorator_list
        and any(called_name(word) == "group" for word in function.decorator_list if isinstance(word, ast.Call))
        for function in ast.walk(tree)
        if isinstance(function, _FUNCTIONS)
    )


def _place_argparse(tree: ast.Module, option: ast.Call, files: Sequence[str]) -> bool | None:
    """Whether an option of argparse's has to come first; ``None``: it cannot be told, or nothing parses it."""
    if not _parses_command_line(tree, files):
        return None
    calls = [call for file in files for call in list_file_calls(file)]
    takes_rest = any(
        word.arg == "nargs" and (ast.unparse(word.value).endswith("REMAINDER") or ast.unparse(word.value) == "'...'")
        for call in calls
        for word in call.keywords
    )
    if not any(called_name(call) == "add_subparsers" for call in calls):
        return takes_rest
    receiver = option.func.value if isinstance(option.func, ast.Attribute) else None
    maker = _maker(tree, receiver)
    shared = {ast.unparse(part) for call in calls if called_name(call) == "add_parser"
              for word in call.keywords if word.arg == "parents" for part in ast.walk(word.value)
              if isinstance(part, ast.Name)}  # fmt: skip
    if maker == "add_parser" or (receiver is not None and ast.unparse(receiver) in shared):
        return None if takes_rest else False
    return True if maker in ("ArgumentParser", "add_argument_group") else None


def _maker(tree: ast.Module, receiver: ast.expr | None) -> str | None:
    """What makes the parser to which an option is added."""
    makers = {
        called_name(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and isinstance(receiver, ast.Name)
        and any(isinstance(target, ast.Name) and target.id == receiver.id for target in node.targets)
    }  # fmt: skip
    return next(iter(makers)) if len(makers) == 1 else None


def _parses_command_line(tree: ast.Module, files: Sequence[str]) -> bool:
    """Whether a file's parsers parse the command line, and not words that the text writes."""
    parsed = []
    for function in ast.walk(tree):
        if not isinstance(function, ast.Call) or called_name(function) not in _PARSES:
            continue
        stated = next((word.value for word in function.keywords if word.arg == "args"), None)
        parsed.append(function.args[0] if function.args else stated)
    return not parsed or any(not _is_written(words, tree, files) for words in parsed)


def _is_written(words: ast.expr | None, tree: ast.Module, files: Sequence[str]) -> bool:
    """Whether the words to parse are those of the text: a list, a string that is split, or a parameter of a function
    that is called with such."""
    if isinstance(words, ast.List | ast.Tuple | ast.Constant):
        return not (isinstance(words, ast.Constant) and words.value is None)
    if isinstance(words, ast.Call):
        return (
            called_name(words) == "split"
            and isinstance(words.func, ast.Attribute)
            and isinstance(words.func.value, ast.Constant)
        )
    if not isinstance(words, ast.Name):
        return False
    takers = [
        function.name
        for function in ast.walk(tree)
        if isinstance(function, _FUNCTIONS) and any(argument.arg == words.id for argument in function.args.args)
    ]
    given = [call.args[0] for file in files for call in list_file_calls(file)
             if called_name(call) in takers and call.args]  # fmt: skip
    return bool(given) and all(isinstance(part, ast.List | ast.Tuple) for part in given)


def _is_assigned_to(tree: ast.Module, call: ast.Call, name: str) -> bool:
    return any(
        isinstance(node, ast.Assign) and node.value is call
        and any(isinstance(target, ast.Name) and target.id == name for target in node.targets)
        for node in ast.walk(tree)
    )  # fmt: skip
