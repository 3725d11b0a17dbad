"""``--progress``: what a running sweep shows."""

from __future__ import annotations

import sys
from typing import TextIO, cast

from pipetune.cli.streams import Lossy
from pipetune.errors import UsageError
from pipetune.sweeping.observer import SweepObserver

NAMES = ("auto", "lines", "json", "none")


def observer_of(name: str) -> SweepObserver:
    """What shows the progress of a sweep, on standard error.

    Raises:
        UsageError: there is no such way.
    """
    from rich.console import Console

    from pipetune.report.progress_json import JsonLines
    from pipetune.report.terminal.progress import Display

    if name not in NAMES:
        raise UsageError(f"--progress {name!r} is unknown", hint=f"choose from {', '.join(NAMES)}")
    if name == "json":
        return JsonLines(cast(TextIO, Lossy(sys.stderr)))
    if name == "none":
        return SweepObserver()
    stream = cast(TextIO, Lossy(sys.stderr))
    return Display(Console(file=stream, force_terminal=False if name == "lines" else None))
