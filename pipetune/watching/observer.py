"""What a running watch reports, and to whom: the library prints nothing itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from pipetune.records.watch import Stall, WatchResult, WatchStart, Window
from pipetune.watching.watcher import Watcher

#: Opens the watcher between two of its readings; ``None`` inside the ``with``: a reading takes too long.
Held = Callable[[], AbstractContextManager[Watcher | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchEnd:
    """Why a watch ended, and its result."""

    record: WatchResult
    """The end as it is written to ``result.json`` and the log."""
    exit_code: int
    """Of the watch alone, whatever the job's is: 0, or 1 where ``record.below`` or ``lost`` says why, or what stopped
    it."""
    seconds: float
    """How long the watch ran."""
    stalls: tuple[Stall, ...]
    """The newest."""
    folder: Path | None
    """Run folder; ``None``: none was written."""
    lost: int
    """Records that could not be written."""
    problem: str | None
    """Why not."""


class WatchObserver(AbstractContextManager["WatchObserver"]):
    """Receives what a watch reports while it runs; this one does nothing with it.

    A context manager, entered once before the first report.
    """

    def __exit__(self, *_: object) -> None:
        """The watch has ended, whichever way."""

    def on_start(self, record: WatchStart) -> None:
        """The watch begins. ``record``: what is watched, as it is written to ``run.json``."""

    def on_accelerators(self, names: Sequence[str]) -> None:
        """Names of the GPUs that are read by now."""

    def on_note(self, text: str) -> None:
        """Something that the user should know. The same text may come again."""

    def on_stall(self, stall: Stall) -> None:
        """A stall has ended."""

    def on_window(self, window: Window) -> None:
        """A window has closed."""

    def on_pause(self, held: Held) -> None:
        """All readings so far are reported: about once per second, the moment to draw."""

    def on_end(self, end: WatchEnd) -> None:
        """The watch has ended."""
