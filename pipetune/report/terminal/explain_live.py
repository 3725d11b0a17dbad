"""What is shown while parts of a loader are measured: a line that changes on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Self

from pipetune.explaining.facts import PARTS
from pipetune.explaining.run import ExplainObserver
from pipetune.measure.conditions import Live
from pipetune.records.sweep import Outcome
from pipetune.report.columns import format_interval
from pipetune.report.terminal.progress import draws_over
from pipetune.report.terminal.progress_text import live_text
from pipetune.report.terminal.signs import clean, clean_lines
from pipetune.units import format_duration

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

#: Without a terminal, a slow stage reports its progress after this time (s).
_FIRST_LINE_S = 3.0


class Display(ExplainObserver):
    """Shows progress; a context manager."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status: Status | None = None
        self._open = contextlib.ExitStack()
        self._began = self._next_line = time.monotonic()

    def __enter__(self) -> Self:
        if draws_over(self._console):
            self._status = self._open.enter_context(self._console.status("", spinner="line"))
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()
        self._status = None

    def on_stage(self, stage: str, done: int, total: int | None) -> None:
        """Progress of what comes before the first measurement."""
        text = f"{stage}: {done:,}{f' of {total:,}' if total else ''}" if done or total else stage
        if self._status is None and time.monotonic() - self._next_line > _FIRST_LINE_S:
            self._next_line = time.monotonic()
            self._print(text)
        self._show(text)

    def on_live(self, part: str, number: int, of: int, live: Live) -> None:
        """News of the part that is being measured."""
        self._show(f"{number} of {of}: {PARTS.get(part, part)}: {live_text(live, '')}")

    def on_outcome(self, outcome: Outcome, number: int, of: int) -> None:
        """A part was measured."""
        name = PARTS.get(outcome.part or "", outcome.part or "")
        if outcome.measurement is None:
            reason = "no result" if outcome.failure is None else outcome.failure.message
            self._print(f"{number} of {of}: {name}: {reason}")
        else:
            self._print(f"{number} of {of}: {name}: {format_interval(outcome.measurement)}")

    def _show(self, text: str) -> None:
        if self._status is not None:
            from rich.text import Text

            elapsed = format_duration(time.monotonic() - self._began)
            self._status.update(Text(clean(f"{text} ({elapsed}; Ctrl-C stops and keeps what was measured)")))

    def _print(self, line: str) -> None:
        self._console.print(clean_lines(line), markup=False, highlight=False, emoji=False, soft_wrap=True)
