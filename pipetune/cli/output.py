"""Where a command's FILE options lead to: checked before the work, written whole or not at all after it."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from pipetune.errors import MissingPackageError, UsageError, exit_code_of
from pipetune.store.files import os_errors_as, replace_file

if TYPE_CHECKING:
    from rich.console import Console

#: Width of a result that goes to a file or a pipe (characters): that of the whole table.
_WIDE = 160


def check_target(option: str, target: str | None, name: str) -> None:
    """Refuse a place that could not be written to later; ``-`` is standard output, ``None``: nothing was asked for.

    Args:
        option: as the user wrote it, e.g. ``--json``.
        target: its value.
        name: of a file, for the hint; none that a run folder has, which that folder would lose.

    Raises:
        UsageError: it is a folder, or lies in none.
    """
    if target is None or target == "-":
        return
    path = Path(target)
    if path.is_dir():
        raise UsageError(f"{option} {target} is a folder", hint=f"write {option} {path / name}")
    if not path.parent.is_dir():
        raise UsageError(f"{option} {target}: the folder {path.parent} does not exist", hint=f"mkdir -p {path.parent}")


def check_figures(option: str, target: str | None) -> None:
    """Refuse a page before anything is measured for it, where its figures could not be drawn.

    Raises:
        MissingPackageError: matplotlib is not installed.
    """
    if target is not None and importlib.util.find_spec("matplotlib") is None:
        raise MissingPackageError(
            f"{option} {target}: matplotlib, which draws the page's figures, is not installed",
            hint="pip install 'pipetune[notebook]'",
        )


def write_text(target: str, parts: Iterable[str]) -> None:
    """Write the parts one after the other, so that a long file is never whole in memory.

    Raises:
        PipetuneError: the disk refuses.
        OSError: standard output does.
    """
    if target == "-":
        sys.stdout.writelines(parts)
        sys.stdout.flush()
        return
    path = Path(target)
    with os_errors_as("write", path):
        encoded = (part.encode("utf-8", errors="backslashreplace") for part in parts)
        if path.exists() and not path.is_file():  # /dev/stderr, a named pipe: to be written to, not replaced
            with path.open("wb") as file:
                file.writelines(encoded)
            return
        replace_file(path.resolve(), encoded)  # through a symbolic link, not over it


def result_console(*, stderr: bool = False) -> Console:
    """Where the result of a sweep is printed: as wide as the terminal, and wide where there is none."""
    from rich.console import Console

    # A file or a pipe has no width of its own, and rich would assume 80: its reader wants the whole table.
    has_width = (sys.stderr if stderr else sys.stdout).isatty() or os.environ.get("COLUMNS", "").isdigit()
    return Console(stderr=stderr, width=None if has_width else _WIDE)


def tell_interruption(stop: KeyboardInterrupt) -> int:
    """Print that nothing came of a command, and what belongs to that; returns the exit code."""
    for line in ("interrupted", *getattr(stop, "__notes__", ())):
        echo(f"pipetune: {line}", err=True)
    return exit_code_of(stop)


def say(console: Console, text: str, style: str | None = None) -> None:
    """Print a line; rich neither marks it up nor wraps it, and what is no text in it becomes ``?``."""
    from pipetune.report.terminal.signs import clean_lines

    # emoji: otherwise ``own:train:make_loader()`` would be printed with a train in it, markup or not.
    console.print(clean_lines(text), style=style, markup=False, highlight=False, emoji=False, soft_wrap=True)


def echo(text: str, *, err: bool = False) -> None:
    """Print lines without style, on standard output or error; what is no text in them becomes ``?``."""
    from pipetune.report.terminal.signs import clean_lines

    print(clean_lines(text), file=sys.stderr if err else sys.stdout, flush=True)


def write_json(json_file: str, content: object) -> None:
    """``content`` as one object to a file, or to standard output for ``-``.

    Raises:
        PipetuneError: the disk refuses.
    """
    write_text(json_file, [json.dumps(content, indent=2, allow_nan=False) + "\n"])
