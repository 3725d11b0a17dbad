"""What a watch opens before its first reading: run folder, log and exporter; and its start record."""

from __future__ import annotations

import contextlib
import os
import time
from datetime import datetime
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

from pipetune.errors import PipetuneError, UsageError
from pipetune.machine.host import describe_host
from pipetune.records.redact import redact_words
from pipetune.records.sweep import to_dict
from pipetune.records.watch import WatchStart
from pipetune.store.files import LOCK_FILE, OWN_FILE
from pipetune.store.folder import RunFolder, create_run
from pipetune.version import __version__
from pipetune.watching.find import Target
from pipetune.watching.options import WatchOptions

if TYPE_CHECKING:
    from pipetune.watching.prometheus import Exporter


def new_folder(out: Path | None, title: str) -> RunFolder:
    """An open run folder.

    Args:
        out: new or empty; ``None``: one that is named after the time and the job.
        title: of the job.

    Raises:
        PipetuneError: the folder cannot be used.
    """
    return create_run(out, dataset_name=f"watch-{title}".replace("/", "-"), now=datetime.now())


def open_folder(options: WatchOptions, title: str, notes: SimpleQueue[str]) -> RunFolder | None:
    """The run folder; ``None``: none was asked for, or the disk refuses one that was not named, which is noted.

    Raises:
        PipetuneError: the folder that was named cannot be used.
    """
    if not options.save:
        return None
    try:
        return new_folder(options.out, title)
    except PipetuneError as error:
        if options.out is not None:
            raise
        notes.put(f"no run folder: {error}")
        return None


def discard(folder: RunFolder | None) -> None:
    """Close and remove a run folder that nothing was written to."""
    if folder is not None:
        folder.close()
        with contextlib.suppress(OSError):
            (folder.path / LOCK_FILE).unlink()
            folder.path.rmdir()


def check_log(log: Path | None) -> None:
    """Refuse a log file that cannot be written.

    Raises:
        UsageError: names the file and the reason.
    """
    if log is None:
        return
    if log.is_dir() or not log.parent.is_dir():
        raise UsageError(f"--log {log} is no file that can be written", hint="name a file in a folder that exists")
    try:
        with open(log, "ab", opener=partial(os.open, mode=OWN_FILE)):
            pass
    except OSError as error:
        raise UsageError(f"cannot write --log {log}: {error.strerror}", hint="name another file") from error


def open_exporter(address: str | None) -> Exporter | None:
    """The server for Prometheus; ``None``: none was asked for.

    Raises:
        UsageError: this is not an address.
        PipetuneError: the port is in use, or the address is not of this machine.
    """
    if address is None:
        return None
    from pipetune.watching.prometheus import start

    return start(address)


def describe_watch(target: Target, options: WatchOptions) -> WatchStart:
    """What is watched, how and where: the first line of a log, and ``run.json``."""
    return WatchStart(
        pipetune=__version__,
        pid=target.info.pid,
        title=target.info.title,
        job_command=redact_words(target.info.command),
        found=target.found,
        interval_s=options.interval_s,
        window_s=options.window_s,
        # One instant on both clocks: times *_ns count from an arbitrary moment.
        unix_s=time.time(),
        monotonic_ns=time.monotonic_ns(),
        host=to_dict(describe_host()),
    )
