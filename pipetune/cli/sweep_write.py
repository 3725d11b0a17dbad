"""Writes the result of a sweep to the places that were asked for."""

from __future__ import annotations

import json

from pipetune.cli.output import write_text
from pipetune.errors import PipetuneError
from pipetune.store.folder import RunFolder
from pipetune.sweeping.result import SweepResult, to_json


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
    write_text(json_file, [json.dumps(content, indent=2, allow_nan=False) + "\n"])
