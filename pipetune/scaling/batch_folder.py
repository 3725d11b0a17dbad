"""The run folder of ``pipetune batch-size``: its result is whole after each batch size, whatever happens then.

::

    pipetune-runs/20260131-184500-batch-size-resnet50/
        run.json             what was asked, and of which machine
        result.json          the batch sizes so far, as --json prints them
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from pipetune.errors import PipetuneError, UsageError
from pipetune.machine.host import describe_host
from pipetune.protection.contract import Request
from pipetune.protection.guard import named_folders
from pipetune.records.batch_size import BatchSizes
from pipetune.records.redact import own_command, redact_words
from pipetune.records.sweep import SCHEMA, from_dict, to_dict
from pipetune.runs.recover import recover_all
from pipetune.runs.run import BATCH_SIZE, Run
from pipetune.scaling.batch_run import BatchOptions
from pipetune.scaling.batch_script import ScriptOptions
from pipetune.scaling.scale_json import batch_size_json
from pipetune.store.files import RESULT_FILE, RUN_FILE
from pipetune.store.folder import RunFolder, check_out, create_run
from pipetune.sweeping.script_files import ScriptFiles
from pipetune.sweeping.script_setup import uri_of
from pipetune.version import __version__


class BatchFolder:
    """Keeps what was found so far; the folder is made when there is something to keep. A context manager.

    Args:
        out: the run folder, new or empty; ``None``: ``pipetune-runs/TIME-batch-size-NAME``.
        name: of the model or script.
        options: that were chosen.

    Raises:
        UsageError: ``out`` is no place for a run folder.
    """

    def __init__(self, out: Path | None, name: str, options: Mapping[str, Any]) -> None:
        check_out(out)
        self._out, self._name, self._options = out, name, options
        self._started = datetime.now().astimezone()
        self._folder: RunFolder | None = None
        self._is_described = False
        """The folder has its ``run.json``."""
        self.not_written: PipetuneError | None = None
        """The disk refused: to be raised once the result has been shown."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._folder is not None:
            self._folder.remove_unless_used()
            self._folder.close()

    def protect_files(self, chosen: ScriptOptions) -> ScriptFiles:
        """What keeps the files of a script as they are, before its first start; the run folder is made for it.

        Raises:
            UsageError: this system has no way to protect files.
            PipetuneError: the disk refuses.
        """
        recover_all(self._out, named_folders(Request(command=chosen.command, cwd=Path.cwd())))
        return ScriptFiles(self._make(), chosen.command, allow_writes=chosen.allow_writes)

    def _make(self) -> RunFolder:
        if self._folder is None:
            self._folder = create_run(
                self._out, dataset_name=f"batch-size-{self._name}", now=self._started.replace(tzinfo=None)
            )
        return self._folder

    @property
    def path(self) -> Path | None:
        """The run folder; ``None``: nothing was measured, or the disk refused to make it."""
        return None if self._folder is None or not self._is_described else self._folder.path

    def keep(self, found: BatchSizes) -> None:
        """Have this on the disk. Measuring goes on where the disk refuses."""
        try:
            folder = self._make()
            if not self._is_described:
                folder.write_json(RUN_FILE, self._record())
                self._is_described = True
            folder.write_json(RESULT_FILE, batch_size_json(found))
            self.not_written = None
        except PipetuneError as error:
            self.not_written = error

    def _record(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "kind": BATCH_SIZE,
            "pipetune": __version__,
            "started": self._started.isoformat(),
            "command": own_command(sys.argv),
            "cwd": os.getcwd(),
            "options": dict(self._options),
            "host": to_dict(describe_host()),
            "notes": [],
        }


def open_batch_folder(out: Path | None, chosen: BatchOptions | ScriptOptions) -> BatchFolder:
    """The folder for a search with these options; arguments and errors as for :class:`BatchFolder`."""
    if isinstance(chosen, ScriptOptions):
        options = {**to_dict(chosen), "command": list(redact_words(chosen.command))}
        return BatchFolder(out, uri_of(chosen.command).partition(":")[2], options)
    return BatchFolder(out, chosen.model, to_dict(chosen))


def read_batch_sizes(run: Run) -> BatchSizes:
    """What a stored run found; of one that was killed what it had measured until then.

    Raises:
        UsageError: the run is of another kind, has measured nothing, or is damaged.
    """
    if run.kind != BATCH_SIZE:
        raise UsageError(
            f"{run.path} is a run of pipetune {run.kind}, not of pipetune batch-size",
            hint="pipetune report shows both",
        )
    try:
        return from_dict(BatchSizes, run.result["batch_sizes"])
    except (KeyError, TypeError) as error:
        raise UsageError(
            f"{run.path}: {RESULT_FILE} is missing or damaged ({error})", hint="pipetune batch-size measures it anew"
        ) from error
