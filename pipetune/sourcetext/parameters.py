"""Options that parsers make of a function's parameters or a class's fields."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

from pipetune.sourcetext.declarations import DeclaredOption, called_name, list_file_calls
from pipetune.sourcetext.scope import Function, Scope, find_default, is_parameter
from pipetune.sourcetext.written import Written

#: What makes options of a function's parameters -> how a parameter's name becomes an option.
_RUNNERS = {"run": "-", "command": "-", "callback": "-", "cli": "-", "Fire": "_", "CLI": "_", "auto_cli": "_"}
#: What makes options of the fields of a dataclass.
_FIELD_PARSERS = frozenset(
    {"HfArgumentParser", "H4ArgumentParser", "TrlParser", "add_arguments", "parse", "cli", "CLI"}
)
#: Of these, what takes a parameter without a default as an option; the others as a positional argument.
_NAME_REQUIRED = frozenset({"cli", "Fire"})
#: Of these, what reads configuration files, too.
_FILE_READERS = frozenset({"CLI", "auto_cli"})


def list_by_parameter(written: Written, wanted: str, files: Sequence[str]) -> Iterable[DeclaredOption]:
    """A parameter of a function that typer, fire, tyro or jsonargparse runs; of a class that LightningCLI makes."""
    scope = written.scope
    function = scope.function if written.by_default or isinstance(written.value, ast.Name) else _constructor(scope)
    if function is None or not is_parameter(function, wanted):
        return
    if scope.kind is not None and function.args.args and function.args.args[0].arg == "self":
        makers = [node for file in files for node in list_file_calls(file) if called_name(node) == "LightningCLI"]
        if makers:
            yield DeclaredOption(
                (f"--{_group(scope.kind)}.{wanted}",), find_default(function, wanted), reads_files=True
            )
        return
    runner = _runner(function, scope.file, files)
    if runner is None:
        return
    default = find_default(function, wanted)
    is_positional = default is None and runner not in _NAME_REQUIRED
    note = next((argument.annotation for argument in _list_arguments(function) if argument.arg == wanted), None)
    if is_positional or any(_is_argument(part) for part in (note, default)):
        return
    stated = _stated_flags(function, wanted)
    name = wanted.replace("_", _RUNNERS[runner])
    plain = None if isinstance(default, ast.Call) else default
    if isinstance(default, ast.Call) and default.args:
        plain = default.args[0]
    yield DeclaredOption(stated or (f"--{name}",), plain, reads_files=runner in _FILE_READERS)


def _list_arguments(function: Function) -> list[ast.arg]:
    return [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]


def _is_argument(part: ast.expr | None) -> bool:
    """Whether a parameter's default or annotation makes a positional argument of it: ``typer.Argument(3)``."""
    return part is not None and any(
        isinstance(node, ast.Call) and called_name(node) == "Argument" for node in ast.walk(part)
    )


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
    note = next((argument.annotation for argument in _list_arguments(function) if argument.arg == name), None)
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


def list_by_field(tree: ast.Module, wanted: str, files: Sequence[str]) -> Iterable[DeclaredOption]:
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
                yield DeclaredOption(
                    (f"--{wanted.replace('_', '-') if dashes else wanted}",), default, reads_files=True
                )


def _list_field_parsers(kind: str, files: Sequence[str]) -> set[str]:
    """Parsers that are given a class."""
    return {
        called_name(call)
        for file in files
        for call in list_file_calls(file)
        if called_name(call) in _FIELD_PARSERS
        and any(isinstance(part, ast.Name) and part.id == kind for value in call.args for part in ast.walk(value))
    }
