"""Progress of a sweep under the cell of a notebook that runs it: one output that is replaced as the sweep goes on."""

from __future__ import annotations

import io
import sys
import time
from typing import Any, Self

from pipetune.records.sweep import Outcome
from pipetune.report.terminal.progress import Display
from pipetune.sweeping.observer import Event
from pipetune.sweeping.progress import Progress

_EVERY_S = 0.5
_MAX_LINES = 200


def in_notebook() -> bool:
    """Whether this program runs in an IPython kernel, as in a notebook."""
    shell = sys.modules.get("IPython")
    if shell is None:
        return False
    running = shell.get_ipython()
    return running is not None and hasattr(running, "kernel")


class NotebookDisplay(Display):
    """A bar, the running candidate, and a line per finished one. The lines stay in the notebook when it is saved."""

    def __init__(self) -> None:
        from rich.console import Console

        # In a kernel, rich would show each line as an output of its own, whatever its file is.
        super().__init__(Console(file=io.StringIO(), force_jupyter=False))
        self._handle: Any = None
        self._drawn_s = 0.0

    def __enter__(self) -> Self:
        from IPython.display import display

        show: Any = display

        self._handle = show(_Plain("starting"), display_id=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._draw(over=True)

    def on_stage(self, stage: str, done: int, total: int | None) -> None:
        """See :class:`Display`."""
        super().on_stage(stage, done, total)
        self._draw()

    def on_event(self, event: Event) -> None:
        """See :class:`Display`."""
        super().on_event(event)
        self._draw()

    def on_outcome(self, outcome: Outcome) -> None:
        """See :class:`Display`."""
        super().on_outcome(outcome)
        self._draw()

    def on_progress(self, progress: Progress) -> None:
        """See :class:`Display`."""
        super().on_progress(progress)
        self._draw()

    def _draw(self, *, over: bool = False) -> None:
        now_s = time.monotonic()
        if self._handle is None or (now_s - self._drawn_s < _EVERY_S and not over):
            return
        self._drawn_s = now_s
        lines = list(self.done[-_MAX_LINES:]) if over else self.lines(_MAX_LINES)
        self._handle.update(_Plain("\n".join(lines)))


class _Plain:
    """Text that IPython shows as it is."""

    def __init__(self, text: str) -> None:
        self._text = text

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(self._text)
