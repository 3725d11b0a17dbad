"""``pipetune run``: train a script with what its sweep has found; or print what that would change."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Annotated

import typer

from pipetune.errors import UsageError


def run_command(
    tuned: Annotated[Path, typer.Option(metavar="RUN", help="Run folder of the sweep: pipetune-runs/TIME-script-…")],
    command: Annotated[
        list[str] | None,
        typer.Argument(help="The training to start, after --, e.g. -- python train.py.", metavar="-- COMMAND"),
    ] = None,
    show: Annotated[
        bool,
        typer.Option("--print", help="Print what would be changed, as file and line and as the script's own option."),
    ] = False,
) -> None:
    """Train your own script with the settings that a sweep of it has found, without editing it.

    pipetune becomes the command: exit code, signals, standard input and terminal are the script's own.
    """
    from pipetune.cli.output import echo
    from pipetune.report.script_text import command_with_option, setting_line
    from pipetune.sweeping.tuned import environment_of, read_tuned

    found = read_tuned(tuned)
    if show:
        echo(setting_line(found.summary, found.candidate))
        by_option = command_with_option(found.summary, found.candidate)
        if by_option is not None:
            echo(by_option)
        if found.refused is not None:
            echo(f"not applied here: {found.refused}", err=True)
        return
    if not command:
        raise UsageError(
            "there is no command to start", hint=f"write pipetune run --tuned {tuned} -- python train.py, or --print"
        )
    if any("{scratch}" in word for word in command):
        raise UsageError("{scratch} is a temporary folder of a sweep, and this is a training",
                         hint="write the folder that it is to write to")  # fmt: skip
    environment = environment_of(found)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and the command would inherit that
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(command[0], command, environment)
    except OSError as error:
        raise UsageError(f"cannot start {command[0]!r}: {error.strerror}",
                         hint="write it as the shell would start it") from error  # fmt: skip
