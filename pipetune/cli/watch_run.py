"""Runs a watch from its options to its end: find or start the job, look, write, show, conclude."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

from pipetune.errors import UsageError
from pipetune.processes.signals import stop_on_sigterm
from pipetune.processes.user_job import start_job
from pipetune.sampler.job.roles import command_title
from pipetune.watching.options import WatchOptions
from pipetune.watching.run import _watch
from pipetune.watching.setup import check_log, discard, open_folder

if TYPE_CHECKING:
    pass


def run_watch(options: WatchOptions) -> int:
    """Watch until the job or the time ends; returns the exit code.

    Raises:
        PipetuneError: there is nothing to watch, or a file or port that was asked for cannot be had.
        KeyboardInterrupt: asked to stop before anything was seen.
    """
    check_log(options.log)
    notes: list[str] = []
    with contextlib.ExitStack() as held:
        if not options.command:
            stop_on_sigterm()
            return _watch(options, None, None, notes, held)
        # What can be wrong with our own files is said before the job is started, and once it runs nothing of ours
        # can end it.
        folder = open_folder(options, command_title(options.command), notes)
        if folder is not None:
            held.callback(folder.close)
        try:
            job = held.enter_context(start_job(options.command))
        except UsageError:
            discard(folder)
            raise
        try:
            return _watch(options, job, folder, notes, held)
        except Exception as error:
            print(f"pipetune: watching ended: {error}; the job goes on", file=sys.stderr)  # noqa: T201
            while job.wait(3600.0) is None:
                pass
            return job.exit_code or 1
