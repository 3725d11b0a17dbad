"""``pipetune.watch``: another process's training job, watched from a notebook or a script."""

from __future__ import annotations

import contextlib
import threading
import warnings
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from pipetune.api.state import as_html, as_line, verdict_facts
from pipetune.errors import PipetuneError, UsageError
from pipetune.processes.signals import defer_signals
from pipetune.records.watch import Verdict, Window
from pipetune.runs.load import load
from pipetune.runs.run import Run
from pipetune.units import format_duration
from pipetune.watching.find import Target, find_target
from pipetune.watching.observer import WatchEnd, WatchObserver
from pipetune.watching.options import WatchOptions, check
from pipetune.watching.session import JOB_ENDED, WatchSession
from pipetune.watching.setup import new_folder

if TYPE_CHECKING:
    import pandas as pd

#: Readings are written this often (s), or as often as they come.
_POLL_S = 0.2
#: At the end of a watch, what is being written may take this long (s).
_WRITE_LIMIT_S = 5.0


class _Newest(WatchObserver):
    """Keeps the verdicts of the newest window."""

    def __init__(self) -> None:
        self.verdicts: tuple[Verdict, ...] = ()

    def on_window(self, window: Window) -> None:
        self.verdicts = window.verdicts


class Watching:
    """A job that is being watched, from the ``with`` that it is used in to its end. Made by :func:`watch`."""

    def __init__(self, options: WatchOptions, target: Target) -> None:
        self._options, self._target = options, target
        self._session: WatchSession | None = None
        self._newest = _Newest()
        self._end: WatchEnd | None = None
        self._path = Path()
        self._following = threading.Thread(target=self._follow, name="pipetune-watch-log", daemon=True)
        self._over = threading.Event()
        self._failed: Exception | None = None
        self._held = contextlib.ExitStack()

    def __enter__(self) -> Self:
        if self._session is not None:
            raise UsageError("this watch has been used already", hint="call pipetune.watch(pid) once more")
        with contextlib.ExitStack() as held:
            folder = held.enter_context(new_folder(self._options.out, self._target.info.title))
            session = WatchSession(self._options, self._target, self._newest, folder=folder, pause_s=_POLL_S)
            session.start()
            self._session, self._path = session, folder.path
            try:
                self._following.start()
            except RuntimeError:  # the system has no thread left
                session.thread.stop()
                raise
            self._held = held.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        session = self._begun()
        # A second Ctrl-C must not take away what the first one has ended.
        with defer_signals(), self._held:
            self._over.set()
            session.thread.stop()
            self._following.join(_WRITE_LIMIT_S)
            if self._following.is_alive():  # it hangs in a write, as another one would
                self._failed = PipetuneError(f"writing to {self._path} takes longer than {_WRITE_LIMIT_S:g} s")
                warnings.warn(f"the watch was left without its result: {self._failed}", stacklevel=2)
                return
            reason = JOB_ENDED if session.watcher.ended else "the watch was ended"
            end = self._end = session.close(reason if self._failed is None else str(self._failed))
        if end.lost:
            warnings.warn(f"{end.lost} records could not be written: {end.problem}", stacklevel=2)

    def __repr__(self) -> str:
        return as_line("watch", self._facts())

    def _repr_html_(self) -> str:
        return as_html("watch", self._facts())

    def wait(self, seconds: float) -> None:
        """Let it watch; returns earlier when the job has ended.

        Raises:
            PipetuneError: reading failed.
        """
        self._begun()
        self._following.join(min(seconds, threading.TIMEOUT_MAX))
        if self._failed is not None:
            raise PipetuneError(str(self._failed)) from self._failed

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """One verdict per rank over the newest 20 s, the worst first."""
        with self._begun().thread.held(2.0) as watcher:
            return () if watcher is None else watcher.verdicts(20.0)

    @property
    def run(self) -> Run:
        """The run so far, for :mod:`pipetune.plot`."""
        self._begun()
        return load(self._path)

    def frame(self) -> pd.DataFrame:
        """One row per window and rank. See :meth:`pipetune.runs.run.Run.frame`."""
        return self.run.frame()

    def readings(self, rank: str | None = None) -> pd.DataFrame:
        """One row per reading. See :meth:`pipetune.runs.run.Run.readings`."""
        return self.run.readings(rank)

    def stalls(self, rank: str | None = None) -> pd.DataFrame:
        """One row per stall that has ended. See :meth:`pipetune.runs.run.Run.stalls`."""
        return self.run.stalls(rank)

    def _facts(self) -> dict[str, str]:
        facts = {"job": f"{self._target.info.title} (process {self._target.info.pid})"}
        if self._session is None:
            return facts | {"state": "not begun: use it in a with"}
        if self._end is not None:
            facts |= {"state": self._end.record.reason, "duration": format_duration(self._end.seconds)}
            verdicts = self._end.record.verdicts
        else:
            state = "watching" if self._failed is None else str(self._failed)
            facts |= {"state": state, "duration": format_duration(self._session.seconds)}
            verdicts = self._newest.verdicts
        return facts | verdict_facts(verdicts) | {"run folder": str(self._path)}

    def _begun(self) -> WatchSession:
        if self._session is None:
            raise UsageError("nothing has been watched yet", hint="with pipetune.watch(pid) as seen: …")
        return self._session

    def _follow(self) -> None:
        session = self._begun()
        try:
            while not self._over.is_set() and session.tick() is None:
                pass
        except Exception as error:
            self._failed = error


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
        gpu: its GPU as NVML counts them, where it cannot be found.
        out: run folder, new or empty; ``pipetune-runs/TIME-watch-PROGRAM`` unless given.
        interval_s: time between two readings (s), 0.05 to 60.
        window_s: length of the windows (s), each with its verdict: 1 to 3600, at most 1200 readings.
        stacks: sample the job's Python stacks while it loses time, where the system allows it.

    Raises:
        UsageError: there is no such process of this user, or an argument is out of range, named as the command's
            option; in the ``with``: ``out`` cannot be used.
    """
    options = WatchOptions(
        pid=pid, gpu=gpu, out=None if out is None else Path(out), interval_s=interval_s, window_s=window_s,
        stacks=stacks,
    )  # fmt: skip
    check(options)
    target = find_target(pid, gpu)
    if target.remark is not None:
        warnings.warn(target.remark, stacklevel=2)
    return Watching(options, target)
