"""What a watch needs before its first look: the options, the files that it writes, what it says of itself."""

from __future__ import annotations

import contextlib
import os
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipetune.errors import PipetuneError, UsageError
from pipetune.machine.host import describe_host
from pipetune.processes.user_job import JobProcess
from pipetune.records.sweep import to_dict
from pipetune.sampler.job.roles import ProcessInfo, read_info
from pipetune.store.files import LOCK_FILE
from pipetune.store.folder import RunFolder, create_run
from pipetune.version import __version__
from pipetune.watching.options import WatchOptions

if TYPE_CHECKING:
    from pipetune.watching.prometheus import Exporter


def started_job(job: JobProcess) -> ProcessInfo:
    """The job that we have started, as a process; a nameless one when it has ended already."""
    info = read_info(job.pid)
    if info is None:  # it has ended already: there is nothing to see, and nothing wrong
        return ProcessInfo(
            pid=job.pid, parent=os.getpid(), start_ticks=0, name="?", command=(), rank=None, local_rank=None,
        )  # fmt: skip
    return info


def open_folder(options: WatchOptions, title: str, notes: list[str]) -> RunFolder | None:
    """The run folder; ``None``: none was wanted, or the disk refuses and no folder was named.

    Raises:
        PipetuneError: the folder that was named cannot be used.
    """
    if not options.save:
        return None
    try:
        return create_run(options.out, dataset_name=f"watch-{title}".replace("/", "-"), now=datetime.now())
    except PipetuneError as error:
        if options.out is not None:
            raise
        notes.append(f"no run folder: {error}")
        return None


def discard(folder: RunFolder | None) -> None:
    """Nothing was written to it, and nothing will be."""
    if folder is not None:
        folder.close()
        with contextlib.suppress(OSError):
            (folder.path / LOCK_FILE).unlink()
            folder.path.rmdir()


def check_log(log: Path | None) -> None:
    """UsageError where the log file cannot be written."""
    if log is None:
        return
    if log.is_dir() or not log.parent.is_dir():
        raise UsageError(f"--log {log} is no file that can be written", hint="name a file in a folder that exists")
    try:
        with log.open("ab"):
            pass
    except OSError as error:
        raise UsageError(f"cannot write --log {log}: {error.strerror}", hint="name another file") from error


def open_exporter(
    options: WatchOptions, job: JobProcess | None, notes: list[str], held: contextlib.ExitStack
) -> Exporter | None:
    """The server for Prometheus; ``None``: none was wanted, or its port is taken and a job runs already.

    Raises:
        PipetuneError: the port is taken, or the address is none.
    """
    if options.prometheus is None:
        return None
    from pipetune.watching.prometheus import start

    try:
        exporter = start(options.prometheus)
    except PipetuneError as error:
        if job is None:
            raise
        notes.append(f"no Prometheus: {error}")
        return None
    held.callback(exporter.close)
    return exporter


def start_record(options: WatchOptions, info: ProcessInfo, how: str) -> dict[str, Any]:
    """What is watched, how and where: the first line of a log, and ``run.json``."""
    return describe_watch(info, how, options.interval_s, options.window_s)


def describe_watch(info: ProcessInfo, how: str, interval_s: float, window_s: float) -> dict[str, Any]:
    """The same for a watch that no command line has asked for."""
    return {
        "pipetune": __version__,
        "pid": info.pid,
        "title": info.title,
        "job_command": list(info.command),
        "found": how,
        "interval_s": interval_s,
        "window_s": window_s,
        # One instant on both clocks: times *_ns count from an arbitrary moment.
        "unix_s": time.time(),
        "monotonic_ns": time.monotonic_ns(),
        "host": to_dict(describe_host()),
    }
