"""A watch session of a fake job."""

from __future__ import annotations

import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, cast

import pytest

from pipetune.processes.user_job import JobProcess
from pipetune.records.watch import Stall, WatchStart, Window
from pipetune.sampler.job.gpus import RankGpus
from pipetune.sampler.job.job import JobReader
from pipetune.sampler.job.roles import ProcessInfo
from pipetune.store.folder import RunFolder
from pipetune.watching.find import Target
from pipetune.watching.observer import Held, WatchEnd, WatchObserver
from pipetune.watching.options import WatchOptions
from pipetune.watching.prometheus import Exporter
from pipetune.watching.session import WatchSession
from tests.unit.watching.watch_scene import PID, FakeJob

#: Ticks after which a test gives up; each takes one twentieth of a second.
MAX_TICKS = 200


class Recorder(WatchObserver):
    """Keeps what is reported."""

    def __init__(self) -> None:
        self.record: WatchStart | None = None
        self.names: list[str] = []
        self.notes: list[str] = []
        self.stalls: list[Stall] = []
        self.windows: list[Window] = []
        self.pauses = 0
        self.end: WatchEnd | None = None

    def on_start(self, record: WatchStart) -> None:
        self.record = record

    def on_accelerators(self, names: Any) -> None:
        self.names = list(names)

    def on_note(self, text: str) -> None:
        self.notes.append(text)

    def on_stall(self, stall: Stall) -> None:
        self.stalls.append(stall)

    def on_window(self, window: Window) -> None:
        self.windows.append(window)

    def on_pause(self, held: Held) -> None:
        with held() as watcher:
            assert watcher is not None
            self.pauses += 1

    def on_end(self, end: WatchEnd) -> None:
        self.end = end


class FakeGpus:
    problem: str | None = None
    closed = False

    def names(self) -> list[str]:
        return ["Test GPU"]

    def close(self) -> None:
        self.closed = True


class FakeProcess:
    """A job that pipetune has started."""

    def __init__(self) -> None:
        self.exit_code: int | None = None

    def wait(self, _limit_s: float) -> None:
        time.sleep(0.02)


class FakeExporter:
    def __init__(self) -> None:
        self.windows: list[Window] = []

    def update(self, window: Window) -> None:
        self.windows.append(window)


class Watch:
    """A session of a fake job."""

    def __init__(self, folder: RunFolder | None, **options: Any) -> None:
        self.job, self.gpus, self.observer = FakeJob(), FakeGpus(), Recorder()
        self.process: FakeProcess | None = None
        self.exporter = FakeExporter()
        self.notes: SimpleQueue[str] = SimpleQueue()
        info = ProcessInfo(
            pid=PID, parent=1, start_ticks=1, name="python", command=("python", "train.py"), rank=None, local_rank=None
        )
        self.target = Target(info=info, found="found", gpus=cast(RankGpus, self.gpus), notes=self.notes)
        self.options = WatchOptions(**{"interval_s": 0.05, "window_s": 2.0, "stacks": False} | options)
        self.folder = folder
        self.session: WatchSession | None = None

    def start(self, process: FakeProcess | None = None, **seen: Any) -> WatchSession:
        self.job.rank(PID, **seen)
        self.session = WatchSession(
            self.options,
            self.target,
            self.observer,
            job=cast(JobProcess, process),
            folder=self.folder,
            exporter=cast(Exporter, self.exporter),
            reader=cast(JobReader, self.job),
            pause_s=0.0,
        )
        self.session.start()
        return self.session

    def until(self, done: Callable[[], Any]) -> None:
        """Ticks that must not end the watch, until the test has seen what it wants."""
        assert self.session is not None
        for _ in range(MAX_TICKS):
            if done():
                return
            assert self.session.tick() is None
        pytest.fail("it has not come")

    def reason(self) -> str:
        """Ticks until the watch is to be closed."""
        assert self.session is not None
        for _ in range(MAX_TICKS):
            if (reason := self.session.tick()) is not None:
                return reason
        pytest.fail("it has not ended")
