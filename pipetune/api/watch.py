"""``pipetune.watch``: another process's training job, seen from a notebook or a script."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
import warnings
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from pipetune.errors import PipetuneError, UsageError
from pipetune.processes.signals import defer_signals
from pipetune.records.sweep import to_dict
from pipetune.records.watch import Verdict
from pipetune.runs.run import Run, load
from pipetune.sampler.job.find_jobs import named_process
from pipetune.sampler.job.gpus import RankGpus
from pipetune.sampler.job.job import JobReader
from pipetune.sampler.job.roles import ProcessInfo
from pipetune.sampler.stacks.sampling import StackSampler
from pipetune.store.folder import create_run, slug
from pipetune.store.watch_log import WatchLog
from pipetune.watching.setup import describe_watch
from pipetune.watching.thread import Looking
from pipetune.watching.watcher import MOST_LOOKS, Tick, Watcher, reading_of

if TYPE_CHECKING:
    import pandas as pd

_POLL_S = 0.2


class Watching:
    """A job that is being watched, from the ``with`` that it is used in to its end. Made by :func:`watch`."""

    def __init__(
        self, info: ProcessInfo, *, out: Path | None, gpu: int | None, interval_s: float, window_s: float, stacks: bool
    ) -> None:
        self._info, self._out = info, out
        self._notes: list[str] = []
        self._told = 0
        self._gpus = RankGpus(forced=gpu, note=self._notes.append)
        self._interval_s, self._window_s, self._stacks = interval_s, window_s, stacks
        self._over = threading.Event()
        self._taking = threading.Thread(target=self._take, name="pipetune-watch-log", daemon=True)
        self._began = False
        self._held = contextlib.ExitStack()

    def __enter__(self) -> Self:
        if self._began:
            raise UsageError("this watch has been used already", hint="call pipetune.watch(pid) once more")
        with contextlib.ExitStack() as held:
            name = f"watch-{slug(self._info.title)}"
            self._folder = held.enter_context(create_run(self._out, dataset_name=name, now=datetime.now()))
            self._log = WatchLog(self._folder, None)
            self._log.start(describe_watch(self._info, "named by its number", self._interval_s, self._window_s))
            self._reader = JobReader(self._info.pid, self._gpus.of)
            stacks = StackSampler if self._stacks else None
            self._watcher = Watcher(self._reader, window_s=self._window_s, stacks=stacks, own_pid=os.getpid())
            self._looking = Looking(self._watcher, self._interval_s)
            self._looking.start()
            try:
                self._taking.start()
            except RuntimeError:  # no thread is to be had
                self._looking.stop()
                raise
            self._began, self._held = True, held.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A second Ctrl-C must not take away what the first one has ended.
        with defer_signals(), self._held:
            # A look that hangs in the driver is left behind, and with it what only it may touch.
            stopped = self._looking.stop()
            self._over.set()
            self._taking.join(5.0)
            if stopped and not self._taking.is_alive():
                self._conclude()
        if self._log.lost:
            warnings.warn(f"{self._log.lost} records could not be written: {self._log.problem}", stacklevel=2)

    def _conclude(self) -> None:
        for stall in self._watcher.end_stalls():
            self._log.stall(stall)
        window = self._watcher.close_window()
        if window is not None:
            self._log.window(window)
        failed = self._looking.error
        reason = "the job ended" if self._watcher.ended else "the watching was ended"
        self._log.end(
            {
                "reason": f"looking failed: {failed}" if failed is not None else reason,
                "verdicts": [to_dict(verdict) for verdict in self._watcher.summary()],
                "stalls": self._watcher.stall_count,
                "stalled_s": self._watcher.stalled_s,
                "own_core_frac": self._watcher.own_core_frac,
                "own_rss_bytes": self._watcher.own_rss_bytes(),
            }
        )
        self._reader.close()
        self._gpus.close()

    def wait(self, seconds: float) -> None:
        """Let it watch; returns earlier when the job has ended.

        Raises:
            PipetuneError: looking failed.
        """
        self._require_begun()
        until_s = time.monotonic() + seconds
        while self._looking.running and (left_s := until_s - time.monotonic()) > 0:
            time.sleep(min(_POLL_S, left_s))
        if self._looking.error is not None:
            raise PipetuneError(f"looking failed: {self._looking.error}")

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """What the newest 20 s come to: a verdict per rank, the worst first."""
        self._require_begun()
        with self._looking.held(2.0) as watcher:
            return () if watcher is None else watcher.verdicts(20.0)

    @property
    def run(self) -> Run:
        """What was seen so far, for :mod:`pipetune.plot`."""
        self._require_begun()
        return load(self._folder.path)

    def frame(self) -> pd.DataFrame:
        """One row per window and rank. See :meth:`pipetune.runs.run.Run.frame`."""
        return self.run.frame()

    def readings(self, rank: str | None = None) -> pd.DataFrame:
        """One row per look. See :meth:`pipetune.runs.run.Run.readings`."""
        return self.run.readings(rank)

    def stalls(self, rank: str | None = None) -> pd.DataFrame:
        """One row per stall that has ended. See :meth:`pipetune.runs.run.Run.stalls`."""
        return self.run.stalls(rank)

    def _require_begun(self) -> None:
        if not self._began:
            raise UsageError("nothing has been watched yet", hint="with pipetune.watch(pid) as seen: …")

    def _take(self) -> None:
        while True:
            try:
                self._keep(self._looking.ticks.get(timeout=_POLL_S))
            except queue.Empty:
                if self._over.is_set():
                    return

    def _keep(self, tick: Tick) -> None:
        for note in self._notes[self._told :]:
            self._watcher.note(note)
        self._told = len(self._notes)
        for rank in tick.look.ranks:
            self._log.reading(rank.rank, reading_of(tick.look.machine, rank))
        for stall in tick.stalls:
            self._log.stall(stall)
        if tick.window is not None:
            self._log.window(tick.window)


def watch(
    pid: int,
    *,
    gpu: int | None = None,
    out: str | Path | None = None,
    interval_s: float = 0.5,
    window_s: float = 10.0,
    stacks: bool = True,
) -> Watching:
    """Watch a training job of the same user that runs already, without changing it::

        with pipetune.watch(12345) as seen:
            seen.wait(60)
        seen.run.frame()
        pipetune.plot.losses(seen.run)

    Args:
        pid: the training process, or its launcher.
        gpu: its GPU as NVML counts them, where that cannot be told.
        out: run folder, new or empty; ``pipetune-runs/TIME-watch-PROGRAM`` unless given.
        interval_s: time between two looks.
        window_s: length of the windows, each with its verdict.
        stacks: look at the job's Python stacks while it loses time, where the system allows it.

    Raises:
        UsageError: there is no such process of this user, an argument is out of range; in the ``with``: ``out`` cannot
            be used.
    """
    if not 0.05 <= interval_s <= 60 or not 2 * interval_s <= window_s <= interval_s * MOST_LOOKS:
        raise UsageError(
            f"interval_s={interval_s:g}, window_s={window_s:g} is out of range",
            hint="write interval_s=0.5, window_s=10",
        )
    info, remark = named_process(pid)
    found = Watching(
        info, out=None if out is None else Path(out), gpu=gpu, interval_s=interval_s, window_s=window_s, stacks=stacks
    )
    if remark is not None:
        warnings.warn(remark, stacklevel=2)
    return found
