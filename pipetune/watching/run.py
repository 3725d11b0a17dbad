"""A watch in the foreground: until the job or the time ends, or a signal comes."""

from __future__ import annotations

import contextlib
from queue import SimpleQueue

from pipetune.errors import PipetuneError, UsageError, exit_code_of
from pipetune.processes.signals import defer_signals
from pipetune.processes.user_job import JobProcess, start_job
from pipetune.sampler.job.roles import command_title
from pipetune.watching.find import Target, started_target
from pipetune.watching.observer import WatchObserver
from pipetune.watching.options import WatchOptions
from pipetune.watching.session import WatchSession
from pipetune.watching.setup import discard, open_exporter, open_folder

#: The end of a job is waited for in stretches of this length (s).
_LONG_S = 3600.0


def watch_process(options: WatchOptions, target: Target, observer: WatchObserver) -> int:
    """Watch a process that runs already; returns the exit code.

    Raises:
        PipetuneError: the run folder or the port that was asked for cannot be used.
        KeyboardInterrupt: asked to stop before the first reading.
    """
    with contextlib.ExitStack() as held:
        served = held.enter_context(contextlib.ExitStack())
        exporter = open_exporter(options.prometheus)
        if exporter is not None:
            served.callback(exporter.close)
        folder = open_folder(options, target.info.title, target.notes)
        if folder is not None:
            held.callback(folder.close)
        session = WatchSession(options, target, held.enter_context(observer), folder=folder, exporter=exporter)
        return _carry(session, None, served)


def start_and_watch(options: WatchOptions, observer: WatchObserver) -> int:
    """Start ``options.command``, watch it, and return its exit code; where that is 0, 1 for ``--fail-under``.

    Raises:
        PipetuneError: the run folder cannot be used, or the command cannot be started.
    """
    with contextlib.ExitStack() as held:
        # What can be wrong with pipetune's own files is reported before the job is started, and once it runs nothing
        # of pipetune can end it.
        notes: SimpleQueue[str] = SimpleQueue()
        served = held.enter_context(contextlib.ExitStack())
        folder = open_folder(options, command_title(options.command), notes)
        if folder is not None:
            held.callback(folder.close)
        try:
            job = held.enter_context(start_job(options.command))
        except UsageError:
            discard(folder)
            raise
        try:
            target = started_target(job, options.gpu, notes)
            try:
                exporter = open_exporter(options.prometheus)
            except PipetuneError as error:
                exporter = None
                notes.put(f"no Prometheus: {error}")
            if exporter is not None:
                served.callback(exporter.close)
            entered = held.enter_context(observer)
            session = WatchSession(options, target, entered, job=job, folder=folder, exporter=exporter)
            return _carry(session, job, served)
        except Exception as error:
            served.close()
            with contextlib.suppress(Exception):  # the same fault again
                observer.on_note(f"the watch ended: {error}; the job goes on")
            return _job_code(job)


def _carry(session: WatchSession, job: JobProcess | None, served: contextlib.ExitStack) -> int:
    session.start()
    reason, code = None, 0
    try:
        while reason is None:
            reason = session.tick()
    except KeyboardInterrupt as stop:
        reason, code = "interrupted", exit_code_of(stop)
    except PipetuneError as error:
        reason, code = str(error), error.exit_code if job is None else 0  # no fault of ours is the job's
    except OSError as error:  # of standard output: its reader has left, as ``head`` does, or a disk is full
        reason, code = f"the output cannot be written: {error.strerror or error}", 1 if job is None else 0
    # A second Ctrl-C must not take away what the first one has called for.
    with defer_signals() if job is None else contextlib.nullcontext():
        end = session.close(reason, code)
    served.close()  # the job may go on for days, and these figures with it
    if job is None:
        return end.exit_code
    # Of what could not be written the end says so: it is no fault of the job.
    return _job_code(job) or int(end.record.below is not None)


def _job_code(job: JobProcess) -> int:
    """The job's exit code, once it has ended."""
    while (code := job.wait(_LONG_S)) is None:
        pass
    return code
