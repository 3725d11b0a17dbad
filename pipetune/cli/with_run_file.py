"""Gives a command ``--config`` and ``--save-config``."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from pipetune.cli.output import echo
from pipetune.cli.run_file import OWN, Grid, Option, as_toml, labels_of, read_run_file, runs_of
from pipetune.errors import PipetuneError, UsageError
from pipetune.store.files import OWN_FILE, os_errors_as, replace_file

#: In a context's ``meta``: what was read.
_READ = "pipetune.run_file"
#: Options that name one file for the answer.
_ONE_FILE = {"json_file": "--json", "html": "--html"}
#: What does the same for each run of a grid.
_INSTEAD = {
    "json_file": "omit it: each run folder has its answer as result.json; or start the runs one by one",
    "html": "omit it: pipetune report RUN --html FILE writes that of each run folder; or start the runs one by one",
}
#: Exit codes of a run that was asked to stop, by Ctrl-C or SIGTERM: the others of a grid do not begin then.
_STOPPED = (130, 143)
_SAVE = Annotated[
    Path | None,
    typer.Option("--save-config", metavar="FILE", help="Write the options that are given to this file, and end."),
]


def with_run_file(command: Callable[..., None], *, grid: bool = False) -> Callable[..., None]:
    """The command with the two options.

    Args:
        grid: lists of values are allowed, and the command runs once for each combination.
    """
    hints = typing.get_type_hints(command, include_extras=True)
    options = options_of(command)
    config = Annotated[
        Path | None,
        typer.Option(
            "--config", metavar="FILE", is_eager=True,
            callback=lambda context, value: _read(context, value, options, grid=grid),
            help="Take options from this TOML file, in which each stands under its name; the command line wins."
            + (" Lists of values are a grid of runs." if grid else ""),
        ),
    ]  # fmt: skip
    own_context = next((name for name, hint in hints.items() if hint is typer.Context), None)

    def run(run_file_context: typer.Context, **values: Any) -> None:
        save = values["save_config"]
        for name in OWN:
            del values[name]
        if own_context is not None:
            values[own_context] = run_file_context
        for name, value in run_file_context.meta.get(_READ, _NOTHING).many.items():
            values[name] = values[name] or value  # not every version of click looks for lists in a file
        if save is not None:
            _save(save, run_file_context, options)
        else:
            _run(command, values, run_file_context)

    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [
        inspect.Parameter("run_file_context", keyword, annotation=typer.Context),
        *(
            parameter.replace(kind=keyword, annotation=hints[name])
            for name, parameter in inspect.signature(command).parameters.items()
            if name != own_context
        ),
        *(
            inspect.Parameter(name, keyword, default=None, annotation=annotation)
            for name, annotation in zip(OWN, (config, _SAVE), strict=True)
        ),
    ]
    # What typer looks at to know the options.
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    return run


def options_of(command: Callable[..., None]) -> dict[str, Option]:
    """What a command takes, by the names in a run file; its arguments, too."""
    found = {}
    for name, hint in typing.get_type_hints(command, include_extras=True).items():
        if typing.get_origin(hint) is not Annotated:
            continue
        kind, info = typing.get_args(hint)[:2]
        kinds = [one for one in typing.get_args(kind) if one is not types.NoneType] or [kind]
        many = list in (typing.get_origin(kind), typing.get_origin(kinds[0]))
        # typer keeps the first declaration of an option in Annotated as its default.
        words = [word for word in (info.default, *(info.param_decls or ())) if str(word).startswith("--")]
        key = words[0].partition("/")[0].removeprefix("--") if words else name.replace("_", "-")
        found[key] = Option(
            key, name, str if many or kinds[0] not in (int, float, bool) else kinds[0], many=many, help=info.help or "",
            argument=isinstance(info, typer.models.ArgumentInfo),
        )  # fmt: skip
    return found


@dataclass(frozen=True, slots=True)
class _Read:
    """What a run file had."""

    path: Path | None = None
    grid: Mapping[str, Grid] = field(default_factory=dict)
    many: Mapping[str, list[Any]] = field(default_factory=dict)
    """Of options and arguments that take a list."""


_NOTHING = _Read()


def _read(context: typer.Context, path: Path | None, options: Mapping[str, Option], *, grid: bool) -> Path | None:
    if path is None or context.resilient_parsing:
        return path
    parent, command = context.parent, context.info_name or ""
    commands = tuple(parent.command.list_commands(parent)) if parent is not None else ()  # type: ignore[attr-defined]
    found = read_run_file(path, command, options, commands)
    grids = {name: value for name, value in found.items() if isinstance(value, Grid)}
    if grids and not grid:
        name = next(option.name for option in options.values() if option.field in grids)
        raise UsageError(
            f"{path}: {name} has a list of values, and pipetune {command} runs once", hint="name one value"
        )
    many = {option.field: found[option.field] for option in options.values() if option.many and option.field in found}
    context.meta[_READ] = _Read(path, grids, many)
    plain = {name: value.values[0] if isinstance(value, Grid) else value for name, value in found.items()}
    context.default_map = {**(context.default_map or {}), **plain}
    return path


def was_given(context: typer.Context, name: str) -> bool:
    """Whether a parameter's value was given: on the command line, or in a run file."""
    source = context.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"


def _from_file(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "DEFAULT_MAP"


def _save(path: Path, context: typer.Context, options: Mapping[str, Option]) -> None:
    """Write the options that were given.

    Raises:
        UsageError: there is such a file already, or a value is no text.
    """
    read = context.meta.get(_READ, _NOTHING)
    given: dict[str, Any] = {}
    for option in options.values():
        value = context.params[option.field]
        if option.many:
            value = value or read.many.get(option.field)
        if option.field in read.grid and _from_file(context, option.field):
            value = read.grid[option.field].values
        if was_given(context, option.field) and value is not None and value not in ([], ()):
            given[option.field] = value
    try:
        text = as_toml(context.info_name or "", given, options).encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"a value is not UTF-8, which a run file has to be: {error.object!r}",
                         hint="rename it, or write it on the command line") from None  # fmt: skip
    if path.exists():
        raise UsageError(f"{path} is there already", hint="name another file, or remove it")
    with os_errors_as("write", path):
        replace_file(path, [text], mode=OWN_FILE)  # a command may have a password in it
    echo(f"written: {path}; pipetune {context.info_name} --config {path} runs it", err=True)


def _run(command: Callable[..., None], values: dict[str, Any], context: typer.Context) -> None:
    """Once; or once for each run of a grid, all of them, and the first exit code that is not 0 is the end's.

    Raises:
        UsageError: a grid cannot be run with these options.
    """
    read = context.meta.get(_READ, _NOTHING)
    # What is given on the command line holds for all.
    axes = {name: value for name, value in read.grid.items() if _from_file(context, name)}
    if not axes:
        command(**values)
        return
    if isinstance(values.get("resume"), Path):  # a run folder; what pack has begun goes on in each of its folders
        raise UsageError(f"{read.path} has lists of values, and --resume goes on with one run",
                         hint="omit one of them")  # fmt: skip
    for name, option in _ONE_FILE.items():
        if values.get(name) is not None:
            raise UsageError(f"{option} {values[name]} is one file, and {read.path} is a grid of runs",
                             hint=_INSTEAD[name])  # fmt: skip
    out, runs, code = values.get("out"), runs_of(axes), 0
    kinds = {name: hint for name, hint in typing.get_type_hints(command).items() if name in axes}
    for number, (one, label) in enumerate(zip(runs, labels_of(runs), strict=True), 1):
        echo(f"run {number} of {len(runs)}: {label}", err=True)
        chosen = {**values, **{name: _converted(kinds[name], value) for name, value in one.items()}}
        if out is not None and "out" not in one:
            chosen["out"] = Path(out) / label
        ended = _code(command, chosen)
        if ended in _STOPPED:
            raise typer.Exit(ended)
        code = code or ended
    raise typer.Exit(code)


def _converted(hint: Any, value: Any) -> Any:
    """As the command line would give it."""
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    return Path(value) if Path in kinds else value


def _code(command: Callable[..., None], values: Mapping[str, Any]) -> int:
    """Exit code of one run; what is wrong with it is said, and the others run."""
    try:
        command(**values)
    except typer.Exit as end:
        return int(end.exit_code)
    except PipetuneError as error:
        echo(f"pipetune: {error}", err=True)
        return error.exit_code
    except BrokenPipeError:  # nobody reads what is said any more
        raise
    except OSError as error:
        echo(f"pipetune: {error.filename or 'a file'}: {error.strerror or error}", err=True)
        return 1
    return 0
