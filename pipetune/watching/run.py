"""The watch as a program: follow the job, keep what is seen, conclude."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipetune.cli.watch_find import find_process
from pipetune.cli.watch_print import Show
from pipetune.diagnosis import causes
from pipetune.errors import PipetuneError, exit_code_of
from pipetune.processes.signals import defer_signals
from pipetune.processes.user_job import JobProcess
from pipetune.records.sweep import to_dict
from pipetune.records.watch import LOADER_WAIT, Verdict
from pipetune.sampler.job.gpus import RankGpus
from pipetune.sampler.job.job import JobReader
from pipetune.sampler.stacks.sampling import StackSampler
from pipetune.store.folder import RunFolder
from pipetune.store.watch_log import WatchLog
from pipetune.watching.options import WatchOptions
from pipetune.watching.setup import open_exporter, open_folder, start_record, started_job
from pipetune.watching.thread import Looking
from pipetune.watching.watcher import Tick, Watcher, reading_of

if TYPE_CHECKING:
    from pipetune.watching.prometheus import Exporter


#: What was seen is written and shown this often (s): waking up costs more than what there is to do.
_PAUSE_S = 1.0


#: ``--once`` waits so long for a job to begin to train before it says that it has not (s).
_PATIENCE_S = 180.0


def _watch(
    options: WatchOptions,
    job: JobProcess | None,
    folder: RunFolder | None,
    notes: list[str],
    held: contextlib.ExitStack,
) -> int:
    gpus = RankGpus(forced=options.gpu, note=notes.append)
    if job is None:
        info, how = find_process(options.pid, options.gpu, gpus, may_ask=not (options.once or options.json_lines))
        exporter = open_exporter(options, job, notes, held)
        folder = open_folder(options, info.title, notes)
        if folder is not None:
            held.callback(folder.close)
    else:
        info, how = started_job(job), "started by pipetune"
        exporter = open_exporter(options, job, notes, held)
    log = WatchLog(folder, options.log)
    reader = JobReader(info.pid, gpus.of)
    watcher = Watcher(
        reader, window_s=options.window_s, stacks=StackSampler if options.stacks else None, own_pid=os.getpid()
    )
    show = held.enter_context(
        Show(
            title=f"{info.title} (process {info.pid})",
            json_lines=options.json_lines,
            once=options.once,
            beside=job is not None,
        )
    )
    record = start_record(options, info, how)
    log.start(record)
    show.start(record)
    looking = Looking(watcher, options.interval_s)
    looking.start()
    ended = _Ended()
    try:
        _follow(options, job, looking, watcher, log, show, exporter, gpus, notes, ended)
    except KeyboardInterrupt as stop:
        ended.reason, ended.code = "interrupted", exit_code_of(stop)
    except PipetuneError as error:
        ended.reason, ended.code = str(error), error.exit_code
    # A second Ctrl-C must not take away what the first one has called for.
    with defer_signals() if job is None else contextlib.nullcontext():
        # A look that hangs in the driver is left behind, and with it what only it may touch.
        if looking.stop():
            if not options.once:
                _take_rest(looking, watcher, log, show, exporter)
            reader.close()
            gpus.close()
        return _conclude(options, job, watcher, log, show, folder, ended)


@dataclass(slots=True)
class _Ended:
    reason: str = "the job ended"
    code: int = 0


def _follow(
    options: WatchOptions, job: JobProcess | None, looking: Looking, watcher: Watcher, log: WatchLog, show: Show,
    exporter: Exporter | None, gpus: RankGpus, notes: list[str], ended: _Ended,
) -> None:  # fmt: skip
    """Until the job or the time ends, or one window is all that was asked for."""
    began_s = time.monotonic()
    told = 0
    while True:
        for tick in _ticks(looking, job, options.interval_s):
            if gpus.problem is not None and any(rank.source == LOADER_WAIT for rank in tick.look.ranks):
                watcher.note(f"no figures of a GPU: {gpus.problem}")
            show.accelerators(gpus.names())
            _keep(tick, log, show, exporter)
            for note in notes[told:]:
                watcher.note(note)
                show.note(note)
            told = len(notes)
            if options.once and tick.window is not None and (watcher.begun or _patient(began_s)):
                ended.reason = "one window was asked for"
                return
        if log.problem is not None:
            show.note(log.problem)
        show.refresh(looking)
        if job is not None and job.exit_code is not None:
            return
        if not looking.running:
            if looking.error is not None:
                raise PipetuneError(f"looking failed: {type(looking.error).__name__}: {looking.error}")
            if job is None:
                return
        if options.for_s is not None and time.monotonic() - began_s >= options.for_s:
            ended.reason = "the time is up"
            return


def _patient(began_s: float) -> bool:
    return time.monotonic() - began_s >= _PATIENCE_S


def _ticks(looking: Looking, job: JobProcess | None, interval_s: float) -> Iterator[Tick]:
    """Those that are there after a while, which ends early with the job or the looking."""
    (looking if job is None else job).wait(max(_PAUSE_S, interval_s))
    while not looking.ticks.empty():
        yield looking.ticks.get()


def _keep(tick: Tick, log: WatchLog, show: Show, exporter: Exporter | None) -> None:
    for rank in tick.look.ranks if log.keeps_readings else ():
        log.reading(rank.rank, reading_of(tick.look.machine, rank))
    for stall in tick.stalls:
        log.stall(stall)
        show.stall(stall)
    if tick.window is not None:
        log.window(tick.window)
        show.window(tick.window)
        if exporter is not None:
            exporter.update(tick.window)


def _take_rest(looking: Looking, watcher: Watcher, log: WatchLog, show: Show, exporter: Exporter | None) -> None:
    """What was seen since the last window is worth one, too."""
    while not looking.ticks.empty():
        _keep(looking.ticks.get(), log, show, exporter)
    for stall in watcher.end_stalls():
        log.stall(stall)
        show.stall(stall)
    window = watcher.close_window()
    if window is not None and any(verdict.looks for verdict in window.verdicts):
        log.window(window)
        show.window(window)


def _conclude(
    options: WatchOptions, job: JobProcess | None, watcher: Watcher, log: WatchLog, show: Show,
    folder: RunFolder | None, ended: _Ended,
) -> int:  # fmt: skip
    verdicts = watcher.summary()
    code = ended.code
    below = _below(options.fail_under, verdicts)
    job_code = None if job is None else job.exit_code
    record = _end_record(ended.reason, verdicts, watcher, job_code, below)
    log.end(record)
    show.end(ended.reason, verdicts, watcher.stalls, record)
    if folder is not None:
        show.say(f"run folder: {folder.path}")
    if below is not None:
        show.say(f"pipetune: {below}")
        code = code or 1
    if log.lost:
        show.say(f"pipetune: {log.lost} records could not be written: {log.problem}")
        code = code or 1
    if job is None:
        return code
    while (job_code := job.wait(3600.0)) is None:  # the watching is over, the job is not
        pass
    return job_code or code


def _below(fail_under: float | None, verdicts: tuple[Verdict, ...]) -> str | None:
    """Why the wish for a share of busy time was not met."""
    if fail_under is None:
        return None
    known = [1 - verdict.lost_frac for verdict in verdicts if verdict.lost_frac is not None]
    if not known or all(verdict.cause == causes.NOT_STARTED for verdict in verdicts):
        return f"--fail-under {fail_under:g}: nothing was seen that could be judged"
    worst = min(known)
    return f"--fail-under {fail_under:g}: {worst:.2f} of the time was used" if worst < fail_under else None


def _end_record(
    reason: str, verdicts: tuple[Verdict, ...], watcher: Watcher, job_code: int | None, below: str | None
) -> dict[str, Any]:
    return {
        "reason": reason,
        "verdicts": [to_dict(verdict) for verdict in verdicts],
        "stalls": watcher.stall_count,
        "stalled_s": watcher.stalled_s,
        "own_core_frac": watcher.own_core_frac,
        "own_rss_bytes": watcher.own_rss_bytes(),
        "job_exit_code": job_code,
        "below": below,
    }
