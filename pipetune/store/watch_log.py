"""What ``watch`` writes: windows and stalls the moment they exist, readings as they come, in a run folder and a log.

::

    pipetune-runs/20260131-184500-watch-train-py/
        run.json                what is watched, and on which machine
        windows.jsonl           one line per window with its verdicts
        stalls.jsonl            one line per stall, written when it ends
        timelines/RANK.jsonl    readings of one rank (``main`` outside a distributed job)

Readings are thinned out as they become many: all of the first hour and a half at two per second, then every tenth,
after half a day every hundredth. Windows and stalls are all kept.

A disk that refuses does not end the watch: what could not be written is counted and reported.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Container, Sequence
from pathlib import Path
from typing import Any

from pipetune.errors import PipetuneError
from pipetune.records.observation import Reading
from pipetune.records.sweep import to_dict
from pipetune.records.watch import Stall, WatchResult, WatchStart, Window
from pipetune.store.files import RESULT_FILE, RUN_FILE, WINDOWS_FILE, append_lines, append_to_log, encode
from pipetune.store.folder import RunFolder

STALLS_FILE = "stalls.jsonl"
#: The timeline of a training process without a rank.
MAIN = "main"


class WatchLog:
    """Writes to a run folder and to a log file; either may be missing.

    Args:
        folder: open; the caller's to close.
        log: gets every start, window, stall and end as one line, after what is in it already.
    """

    def __init__(self, folder: RunFolder | None, log: Path | None) -> None:
        self._folder, self._log = folder, log
        self.problem: str | None = None
        """The newest refusal of the disk."""
        self._readings: Counter[str] = Counter()
        self._nameless: dict[int, str] = {}
        self.lost = 0
        """Records that could not be written."""
        self._owed: WatchStart | None = None
        """The start, while the folder has not got it: without it nothing says what was watched."""

    @property
    def keeps_readings(self) -> bool:
        """Whether :meth:`readings` writes anything."""
        return self._folder is not None

    def start(self, record: WatchStart) -> None:
        """What is watched, before the first reading."""
        if not self._whole_file(RUN_FILE, record):
            self._owed = record
        self._to_log("start", record)

    def window(self, window: Window) -> None:
        """A window that has closed."""
        self._pay()
        self._to_folder(WINDOWS_FILE, "window", window)
        self._to_log("window", window)

    def stall(self, stall: Stall) -> None:
        """A stall that has ended."""
        self._to_folder(STALLS_FILE, "stall", stall)
        self._to_log("stall", stall)

    def readings(self, new: Sequence[tuple[int | None, int, Reading]]) -> None:
        """The readings of a moment: of each training process its rank, if it has one, its PID, and the reading."""
        if self._folder is None:
            return
        alive = {pid for _, pid, _ in new}
        self._nameless = {pid: key for pid, key in self._nameless.items() if pid in alive}
        for rank, pid, reading in new:
            key = self._nameless.get(pid) if rank is None else timeline_key(rank)
            if key is None:
                # A process that is started anew goes on with the timeline; one beside another has its own.
                key = self._nameless[pid] = _beside(pid) if MAIN in self._nameless.values() else MAIN
            self._readings[key] += 1
            if is_kept(self._readings[key]):
                self._try(functools.partial(self._folder.append_timeline, key, "reading", [reading]))

    def end(self, record: WatchResult) -> None:
        """Why the watch ended, and its result."""
        self._pay()
        self._whole_file(RESULT_FILE, record)
        self._to_log("end", record)

    def _pay(self) -> None:
        if self._owed is None:
            return
        lost = self.lost
        if self._whole_file(RUN_FILE, self._owed):
            self._owed = None
            lost -= 1
        self.lost = lost  # it is one record, however often it is tried

    def _whole_file(self, name: str, record: WatchStart | WatchResult) -> bool:
        folder = self._folder
        if folder is None:
            return True
        return self._try(lambda: folder.write_json(name, {"kind": "watch", **to_dict(record)}))

    def _to_folder(self, name: str, kind: str, record: Window | Stall) -> None:
        if self._folder is not None:
            target = self._folder.path / name
            self._try(lambda: append_lines(target, _line(target, kind, record), sync=True))

    def _to_log(self, kind: str, record: WatchStart | Window | Stall | WatchResult) -> None:
        if self._log is not None:
            log = self._log
            self._try(lambda: append_to_log(log, _line(log, kind, record)))

    def _try(self, write: Callable[[], None]) -> bool:
        try:
            write()
        except PipetuneError as error:
            self.problem = str(error)
            self.lost += 1
            return False
        return True


def _line(target: Path, kind: str, record: Any) -> bytes:
    return encode(target.name, {"kind": kind, **to_dict(record)})


def is_kept(number: int) -> bool:
    """Whether the reading of this number (from 1) is written."""
    return number <= 10_000 or (number <= 100_000 and number % 10 == 0) or number % 100 == 0


def timeline_key(rank: int | None) -> str:
    """Name of a rank's timeline."""
    return MAIN if rank is None else f"rank{rank}"


def timeline_of(rank: int | None, pid: int, names: Container[str]) -> str:
    """Name of the timeline of a training process, of those that a run folder has."""
    return _beside(pid) if rank is None and _beside(pid) in names else timeline_key(rank)


def _beside(pid: int) -> str:
    return f"{MAIN}-{pid}"
