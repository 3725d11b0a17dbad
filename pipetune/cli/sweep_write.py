"""Writes the result of a sweep to the places that were asked for."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pipetune.errors import PipetuneError, UsageError
from pipetune.report.result import SweepResult, to_json
from pipetune.store import RunFolder
from pipetune.store_files import replace_file, told


def check_json_file(json_file: str | None) -> None:
    """Refuse a place for ``--json`` before the sweep that could not be written after it.

    Raises:
        UsageError: it is a folder, or lies in none.
    """
    if json_file is None or json_file == "-":
        return
    target = Path(json_file)
    if target.is_dir():
        raise UsageError(f"--json {json_file} is a folder", hint=f"write --json {target / 'result.json'}")
    if not target.parent.is_dir():
        raise UsageError(f"--json {json_file}: there is no folder {target.parent}", hint=f"mkdir -p {target.parent}")


def write_result(result: SweepResult, folder: RunFolder, json_file: str | None) -> Exception | None:
    """Write it to every place that takes it; the first refusal is returned, not raised: the screen comes next."""
    content = to_json(result)
    refused: Exception | None = None
    try:
        folder.write_json("result.json", content)
    except PipetuneError as error:
        refused = error
    if json_file is not None:
        try:
            write_json(json_file, content)
        except (PipetuneError, OSError) as error:  # standard output that is closed, or on a full disk
            refused = error
    return refused


def write_json(json_file: str, content: object) -> None:
    """``content`` as one object to a file, or to standard output for ``-``.

    Raises:
        PipetuneError: the disk refuses.
    """
    text = json.dumps(content, indent=2, allow_nan=False) + "\n"
    target = Path(json_file)
    if json_file == "-":
        sys.stdout.write(text)
        sys.stdout.flush()
    elif target.exists() and not target.is_file():  # /dev/stderr, a named pipe: to be written to, not replaced
        with told("write", target):
            target.write_text(text)
    else:
        replace_file(target.resolve(), text.encode())  # resolve: through a symbolic link, not over it
