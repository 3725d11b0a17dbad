"""One watch, from its first reading to its end record: for the command and :func:`pipetune.watch` alike."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from pipetune.diagnosis import causes
from pipetune.errors import PipetuneError
from pipetune.processes.user_job import JobProcess
from pipetune.records.observation import LOADER_WAIT
from pipetune.records.watch import Verdict, WatchResult
from pipetune.sampler.job.job import JobReader
from pipetune.sampler.stacks.sampling import StackSampler
from pipetune.store.folder import RunFolder
from pipetune.store.watch_log import WatchLog
from pipetune.watching.find import Target
from pipetune.watching.observer import WatchEnd, WatchObserver
from pipetune.watching.options import WatchOptions
from pipetune.watching.rank import SETUP_S, not_started, stored_reading
from pipetune.watching.setup import describe_watch
from pipetune.watching.thread import WatcherThread
from pipetune.watching.watcher import GAP_S, Tick, Watcher

if TYPE_CHECKING:
    from pipetune.watching.prometheus import Exporter

JOB_ENDED = "the job ended"
#: Readings are written and reported this often (s): waking up costs more than the work itself.
_PAUSE_S = 1.0
#: With ``once`` this is how long a job may take to begin to train, before the watch reports that it has not (s).
_PATIENCE_S = 180.0
#: The same where neither an accelerator nor a loader is in sight, and a stack shows no imports (s).
_SETUP_S = 10.0
#: A reading takes milliseconds; one that takes this long hangs, as in a driver that does not answer (s).
_SILENCE_S = 30.0


class WatchSession:
    """A watch that one thread carries: :meth:`start`, :meth:`tick` until it returns a reason, :meth:`close`.

    The readings are made in a thread of the session's own; everything is written and reported in the calling thread.

    Args:
        options: checked.
        target: what is watched. Its GPUs are closed by :meth:`close`.
        observer: entered already.
        job: the process that pipetune has started, if it has; :meth:`tick` is then called in the main thread.
        folder: run folder, or ``None``; the caller's to close.
        exporter: gets every window; the caller's to close.
        reader: the job's reader; made from ``target`` unless given.
        pause_s: :meth:`tick` takes about this long.
    """

    def __init__(
        self,
        options: WatchOptions,
        target: Target,
        observer: WatchObserver,
        *,
        job: JobProcess | None = None,
        folder: RunFolder | None = None,
        exporter: Exporter | None = None,
        reader: JobReader | None = None,
        pause_s: float = _PAUSE_S,
    ) -> None:
        self._options, self._target, self._observer = options, target, observer
        self._job, self._folder, self._exporter = job, folder, exporter
        self._pause_s = max(pause_s, options.interval_s)
        self._log = WatchLog(folder, options.log)
        self._reader = reader or JobReader(target.info.pid, target.gpus.of, neighbours=target.gpus.neighbours)
        stacks = StackSampler if options.stacks else None
        self.watcher = Watcher(
            self._reader,
            window_s=options.window_s,
            stacks=stacks,
            patience_s=_PATIENCE_S if options.once else None,
            setup_s=_SETUP_S if options.once else SETUP_S,
            gap_s=max(GAP_S, 4 * options.interval_s),
            own_pid=os.getpid(),
        )
        self.thread = WatcherThread(self.watcher, options.interval_s)
        self._started_s = 0.0
        self._silent = 0
        self._judged = False

    def start(self) -> None:
        """Report and write what is watched, and begin to read."""
        record = describe_watch(self._target, self._options)
        self._log.start(record)
        self._observer.on_start(record)
        self.thread.start()
        self._started_s = time.monotonic()

    def tick(self) -> str | None:
        """Wait for a moment, or until the job ends; then write and report the readings that have come.

        Returns:
            Why the watch is to be closed; ``None``: it goes on.

        Raises:
            PipetuneError: reading failed.
        """
        (self.thread if self._job is None else self._job).wait(self._pause_s)
        self._silent += 1
        while not self.thread.ticks.empty():
            tick = self.thread.ticks.get()
            self._silent = 0
            self._take(tick)
            if self._options.once and tick.window is not None:
                self._judged = bool(tick.window.verdicts)  # else that nothing trains is said at the end
                return "one window was asked for"
        if self._log.problem is not None:
            self._observer.on_note(self._log.problem)
        self._observer.on_pause(self.thread.held)
        if self._job is not None and self._job.exit_code is not None:
            return JOB_ENDED
        if self.thread.error is not None:
            raise PipetuneError(f"reading failed: {type(self.thread.error).__name__}: {self.thread.error}")
        if self._job is None and not self.thread.running:
            return JOB_ENDED
        if self._options.for_s is not None and self.seconds >= self._options.for_s:
            return "the time is up"
        self._look_for_silence()
        return None

    def _look_for_silence(self) -> None:
        limit_s = max(_SILENCE_S, 4 * self._options.interval_s)
        # By what was waited for and not by a clock, which goes on while this process is stopped (Ctrl-Z).
        if self._silent * self._pause_s < limit_s:
            return
        text = f"a reading takes longer than {limit_s:g} s: the GPU's driver may not answer (try nvidia-smi)"
        if self._options.once:  # else it would wait for its one window for ever
            raise PipetuneError(text)
        self._observer.on_note(text)

    def rest(self) -> None:
        """Write and report what was read since the last window, once the thread has ended."""
        while not self.thread.ticks.empty():
            self._take(self.thread.ticks.get())
        for stall in self.watcher.end_stalls():
            self._log.stall(stall)
            self._observer.on_stall(stall)
        window = self.watcher.close_window()
        if window is not None and any(verdict.looks for verdict in window.verdicts):
            self._log.window(window)
            self._observer.on_window(window)

    def _judge_once(self) -> None:
        """Write and report the one verdict that was asked for, of a watch that ends before its window is full."""
        while not self.thread.ticks.empty():
            tick = self.thread.ticks.get()
            self._take(tick)
            if tick.window is not None and tick.window.verdicts:
                return
        window = self.watcher.close_only_window() or self.watcher.empty_window()
        if not window.verdicts:
            info = self._target.info
            window = replace(window, verdicts=(not_started(info.pid, info.rank, window.seconds),))
        self._log.window(window)
        self._observer.on_window(window)
        if self._exporter is not None:
            self._exporter.update(window)

    def close(self, reason: str, exit_code: int = 0) -> WatchEnd:
        """End the readings, take the rest, write the end record and report it. To be called once.

        Args:
            reason: why the watch ends, for the end record.
            exit_code: what stopped it, if that decides.
        """
        # A reading that hangs in a driver is left behind, and with it what only its thread may touch.
        if self.thread.stop():
            if not self._options.once:
                self.rest()
            elif not self._judged:
                self._judge_once()
            self._reader.close()
            self._target.gpus.close()
        history = self.watcher.history
        verdicts = history.summary()
        record = WatchResult(
            reason=reason,
            verdicts=verdicts,
            stalls=history.stall_count,
            stalled_s=history.stalled_s,
            own_core_frac=self.watcher.own_core_frac,
            own_rss_bytes=self.watcher.own_rss_bytes(),
            job_exit_code=None if self._job is None else self._job.exit_code,
            below=_below(self._options.fail_under, verdicts),
        )
        self._log.end(record)
        end = WatchEnd(
            record=record,
            exit_code=exit_code or int(record.below is not None or self._log.lost > 0),
            seconds=self.seconds,
            stalls=tuple(history.stalls),
            folder=None if self._folder is None else self._folder.path,
            lost=self._log.lost,
            problem=self._log.problem,
        )
        self._observer.on_end(end)
        return end

    @property
    def seconds(self) -> float:
        """Time since :meth:`start` (s)."""
        return time.monotonic() - self._started_s

    def _take(self, tick: Tick) -> None:
        gpus, ranks = self._target.gpus, tick.reading.ranks
        if gpus.problem is not None and any(rank.source == LOADER_WAIT for rank in ranks):
            self.watcher.note(f"no figures of a GPU: {gpus.problem}")
        self._observer.on_accelerators(gpus.names())
        if self._log.keeps_readings:
            machine = tick.reading.machine
            self._log.readings([(rank.rank, rank.pid, stored_reading(machine, rank)) for rank in ranks])
        for stall in tick.stalls:
            self._log.stall(stall)
            self._observer.on_stall(stall)
        if tick.window is not None:
            self._log.window(tick.window)
            self._observer.on_window(tick.window)
            if self._exporter is not None:
                self._exporter.update(tick.window)
        while not self._target.notes.empty():
            note = self._target.notes.get()
            self.watcher.note(note)
            self._observer.on_note(note)


def _below(fail_under: float | None, verdicts: tuple[Verdict, ...]) -> str | None:
    """Why the share of used time that was asked for was not reached."""
    if fail_under is None:
        return None
    known = [1 - verdict.lost_frac for verdict in verdicts if verdict.lost_frac is not None and not _unseen(verdict)]
    if not known or all(verdict.cause == causes.NOT_STARTED for verdict in verdicts):
        return f"--fail-under {fail_under:g}: nothing was seen that could be judged"
    worst = min(known)
    return f"--fail-under {fail_under:g}: {worst:.2f} of the time was used" if worst < fail_under else None


def _unseen(verdict: Verdict) -> bool:
    """Whether nothing is known of the time that is not lost: no accelerator can be read, and the rest is unclear."""
    unclear = verdict.cause == causes.UNDETERMINED and (verdict.lost_frac or 0.0) < causes.HEALTHY_LOST
    return unclear and verdict.source == LOADER_WAIT
