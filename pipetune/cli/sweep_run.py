"""Shows and writes a sweep that has ended."""

from __future__ import annotations

import shlex

from rich.console import Console

from pipetune.cli.output import say, write_json
from pipetune.cli.sweep_print import print_result
from pipetune.errors import PipetuneError
from pipetune.sweeping.result_json import to_json
from pipetune.sweeping.run import SweepRun


def show(ended: SweepRun, console: Console, json_file: str | None, *, verbose: bool = False) -> int:
    """Write the JSON, print the result, and return the exit code.

    The screen comes last, and a disk that refuses does not keep it from coming.

    Args:
        verbose: also print each warning, and why decoders were left out that would gain nothing.

    Raises:
        PipetuneError: the result could not be written to where it was asked for.
        OSError: standard output is closed, or on a full disk.
    """
    refused: Exception | None = ended.not_written
    if json_file is not None:
        try:
            write_json(json_file, to_json(ended.result))
        except (PipetuneError, OSError) as error:
            refused = error
    notes = ended.prepared.all_notes if verbose else ended.prepared.short_notes
    print_result(console, ended.result, notes, ended.prepared.images, ended.path, verbose=verbose)
    say(console, f"run folder: {ended.path}")
    measured = ended.result.ceiling is not None or ended.result.outcomes
    if ended.stopped == "interrupted" or (ended.stopped is not None and ended.resumable and measured):
        hosts = " --hosts auto" if ended.result.workload.get("hosts", 1) > 1 else ""
        say(console, f"resume with: pipetune sweep --resume {shlex.quote(str(ended.path))}{hosts}")
    if refused is not None:
        raise refused
    return ended.exit_code
