"""What is shown while a data set is packed: a line that changes on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Self

from pipetune.packing.prepare import PackObserver
from pipetune.records.pack import PackPlan, PackRun
from pipetune.report.line import Kind, Line
from pipetune.report.pack_text import gain_lines, plan_lines, result_lines
from pipetune.report.terminal.progress import draws_over
from pipetune.report.terminal.signs import clean, clean_lines
from pipetune.units import format_bytes, format_duration

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

#: Between two plain lines, where there is no terminal, and between two changes where there is one (s).
_LINE_S, _CHANGE_S = 10.0, 0.1
_STYLES = {Kind.HEADLINE: "bold", Kind.WARNING: "yellow"}


class Display(PackObserver):
    """Shows progress, plans and results; a context manager.

    Args:
        progress: takes what changes.
        result: takes plans and results.
        crop: edge of the training crops that are spoken of (px).
    """

    def __init__(self, progress: Console, result: Console, crop: int) -> None:
        self._progress, self._result, self._crop = progress, result, crop
        self._status: Status | None = None
        self._open = contextlib.ExitStack()
        self._shown = self._began = time.monotonic()

    def __enter__(self) -> Self:
        if draws_over(self._progress):
            self._status = self._open.enter_context(self._progress.status("", spinner="line"))
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()
        self._status = None

    def on_stage(self, stage: str, done: int, total: int | None) -> None:
        """Something takes time."""
        self._began = time.monotonic()
        self._show(f"{stage}: {done:,}{f' of {total:,}' if total else ''}")

    def on_plan(self, name: str, plan: PackPlan) -> None:
        """What a pack will be."""
        self._say(plan_lines(name, plan, self._crop))
        self._began = time.monotonic()

    def on_image(self, done: int, total: int, done_bytes: int) -> None:
        """An image was packed."""
        spent = time.monotonic() - self._began
        left = spent / done * (total - done)
        self._show(
            f"{done:,} of {total:,} images, {format_bytes(done_bytes)}, {done / max(spent, 1e-9):,.0f}/s, "
            f"{format_duration(left)} left (Ctrl-C stops; --resume goes on)", last=done == total,
        )  # fmt: skip

    def on_result(self, run: PackRun) -> None:
        """What became of it."""
        if run.result is not None:
            self._say(result_lines(run.name, run.plan, run.result))

    def on_gain(self, run: PackRun) -> None:
        """A training was measured with a pack, too."""
        if run.result is not None and run.result.gain is not None:
            self._say(gain_lines(run.name, run.plan, run.result.gain))

    def on_warning(self, text: str) -> None:
        """Something was left out."""
        self._say([Line(Kind.WARNING, text)])

    def _say(self, lines: list[Line]) -> None:
        for kind, text in lines:
            sign = "! " if kind is Kind.WARNING else ""
            self._result.print(
                clean_lines(sign + text), style=_STYLES.get(kind), markup=False, highlight=False, emoji=False,
                soft_wrap=True,
            )  # fmt: skip

    def _show(self, text: str, *, last: bool = False) -> None:
        now = time.monotonic()
        if now - self._shown < (_LINE_S if self._status is None else _CHANGE_S) and not last:
            return
        if self._status is not None:
            from rich.text import Text

            self._status.update(Text(clean(text)))
        elif now - self._shown >= _LINE_S:
            self._progress.print(clean_lines(text), markup=False, highlight=False, emoji=False, soft_wrap=True)
        else:
            return
        self._shown = now
