"""What is shown while a sweep runs: a live view on a terminal, plain lines elsewhere. Always on standard error.

The best candidate so far is always shown, so that who is content with it may stop the sweep.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Self

from pipetune.candidates.describe import describe
from pipetune.records.sweep import AcceleratorSpec, Goal, Outcome
from pipetune.registry import SCRIPT
from pipetune.report.columns import format_interval
from pipetune.report.terminal.progress_text import label, live_text, outcome_line, rounded
from pipetune.report.terminal.signs import clean, clean_lines
from pipetune.search import cores_decide
from pipetune.sweeping.observer import Event, SweepObserver
from pipetune.sweeping.progress import Progress, TimeLeft
from pipetune.units import format_duration, format_share, format_share_of_target

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

#: Characters of the bar, and the fewest with which it is drawn.
_BAR, _MIN_BAR = 24, 6
#: What Ctrl-C does, as far as a line has room for it.
_CTRL_C = ("; Ctrl-C stops and keeps what was measured", "; Ctrl-C stops")
#: Lines of the live view besides finished candidates.
_OTHER_LINES = 5

#: A time left is told from here on (s): less is what remains where a measurement takes longer than was expected.
_LEAST_LEFT_S = 1.0

#: Without a terminal, a slow stage reports its progress after this time, then after this one, and then ever less often
#: (s): a script that is started twenty times would fill a screen.
_FIRST_LINE_S = 1.0
_SECONDS_PER_LINE, _MAX_SECONDS_PER_LINE = 3.0, 60.0


def _what_else(goal: Goal) -> str:
    """What a sweep goes on to look for once the default is found to suffice."""
    if goal.effort == "quick":
        return "nothing else is looked for"
    if not cores_decide(goal):
        return f"others are measured to save {goal.cheapest[0]}"
    if goal.effort == "normal":
        return "others are measured only while they may save one core, and a tenth of those in use"
    return "others are measured to save cores"


def draws_over(console: Console) -> bool:
    """Whether a live view can be drawn there, again and again over itself.

    ``is_terminal`` alone is not enough: FORCE_COLOR makes it true of a file, and a terminal may know no cursor.
    """
    isatty = getattr(console.file, "isatty", None)
    return bool(console.is_terminal and not console.is_dumb_terminal and isatty is not None and isatty())


class Display(SweepObserver):
    """Shows progress; a context manager. Where no live view can be drawn, it prints a line per finished candidate."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._budget_s: float | None = None
        self._goal: Goal | None = None
        self._best = ""
        self._shown: tuple[str | None, bool] = (None, False)
        self._only_savings = False
        self._untuned = "PyTorch's default"
        self._left: TimeLeft | None = None
        self._left_since_s = 0.0
        self._mark = ""
        self._measured: set[str] = set()
        self._began = time.monotonic()
        self._event: Event | None = None
        self._done: list[str] = []
        self._stage = ""
        self._live: object | None = None
        self._open = contextlib.ExitStack()
        self._next_line = self._began + _FIRST_LINE_S
        self._line_gap_s = _SECONDS_PER_LINE

    def __enter__(self) -> Self:
        if draws_over(self._console):
            from rich.live import Live as RichLive

            # redirect_*: lines that a library prints at the same time appear above the view, not in it.
            view = RichLive(get_renderable=self._render, console=self._console, refresh_per_second=4, transient=True)
            self._live = self._open.enter_context(view)
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()
        self._live = None

    def on_stage(self, stage: str, done: int, total: int | None) -> None:
        """Progress of what comes before the first candidate: listing or making images."""
        self._stage = f"{stage}: {done:,}{f' of {total:,}' if total else ''}" if done or total else stage
        now = time.monotonic()
        if now >= self._next_line:
            self._print(self._stage)
            self._next_line = now + self._line_gap_s
            self._line_gap_s = min(2 * self._line_gap_s, _MAX_SECONDS_PER_LINE)

    def on_start(self, accelerator: AcceleratorSpec, goal: Goal, max_candidates: int, budget_s: float | None) -> None:
        """Measuring begins."""
        self._goal = goal
        self._mark = "EMULATED " if accelerator.kind == "emulated" else ""
        self._budget_s = budget_s
        self._stage = ""
        self._print(
            f"measuring first what {accelerator.name} can take (its max ingestion rate), then at most "
            f"{max_candidates:,} candidate{'' if max_candidates == 1 else 's'}"
        )

    def on_event(self, event: Event) -> None:
        """The running candidate reports progress."""
        self._event, self._stage = event, ""

    def on_known(self, outcome: Outcome) -> None:
        """A candidate is known from before the sweep was interrupted."""
        self._count(outcome)
        self._done.append(outcome_line(outcome, self._mark))

    def on_outcome(self, outcome: Outcome) -> None:
        """A candidate is done."""
        line = outcome_line(outcome, self._mark)
        self._count(outcome)
        self._done.append(line)
        self._event = None
        self._print(line)

    def _count(self, outcome: Outcome) -> None:
        if outcome.candidate.backend == SCRIPT.name:
            self._untuned = "your script as it is"
        if outcome.role != "ceiling":
            self._measured.add(outcome.candidate.key)

    def on_progress(self, progress: Progress) -> None:
        """The best so far may be another one, and the time left is known better."""
        self._left, self._left_since_s = progress.left, time.monotonic()
        if progress.only_savings and not self._only_savings and self._goal is not None:
            self._only_savings = True
            after = format_duration(time.monotonic() - self._began)
            looks_for = _what_else(self._goal)
            line = f"  {self._untuned} suffices, as is known after {after}; {looks_for}"
            self._done.append(line)
            self._print(line)
        self._best = self._best_line(progress)
        now = (progress.best.candidate.key if progress.best else None, progress.suffices)
        if now != self._shown:  # as a plain line only where it is another one, and not for each of its repeats
            self._shown = now
            self._print(self._best)

    def _best_line(self, progress: Progress) -> str:
        if progress.best is None or progress.best.measurement is None or self._goal is None:
            return ""
        m = progress.best.measurement
        share = "" if m.goodput is None else f", goodput {format_share_of_target(m.goodput, self._goal.target)}"
        target = format_share(self._goal.target)
        reaches = f"reaches the target of {target}" if progress.suffices else f"misses the target of {target}"
        return f"  best so far: {describe(progress.best.candidate)}: {format_interval(m)}{share}, {reaches}"

    def _print(self, line: str) -> None:
        """Print a plain line, if there is no live view."""
        if self._live is None:
            self._console.print(clean_lines(line), markup=False, highlight=False, emoji=False, soft_wrap=True)

    def _render(self) -> RenderableType:
        from rich.text import Text

        room = max(3, self._console.height - _OTHER_LINES)
        return Text("\n".join(map(clean, self.lines(room))), overflow="ellipsis", no_wrap=True)

    def lines(self, room: int) -> list[str]:
        """The newest ``room`` candidates that are done, the best so far, the running one with the reason, the time."""
        lines = self._done[-room:]
        if self._best:
            lines.append(self._best)
        if self._stage:
            lines.append(f"… {self._stage}")
        if self._event is not None:
            lines.append(f"… {label(self._event)}: {live_text(self._event.live, self._mark)}")
            lines.append(f"  why: {self._event.why}")
        lines.append(self._clock())
        return lines

    @property
    def done(self) -> tuple[str, ...]:
        """One line per finished candidate."""
        return tuple(self._done)

    def _clock(self) -> str:
        now_s = time.monotonic()
        elapsed = now_s - self._began
        left, frac = "", None
        if self._left is not None:
            left_s = max(0.0, self._left.seconds - (now_s - self._left_since_s))
            if self._budget_s is not None:
                left_s = min(left_s, max(0.0, self._budget_s - elapsed))
            frac = elapsed / max(elapsed + left_s, 1e-9)
            if left_s >= _LEAST_LEFT_S:
                left = f", {'at least' if self._left.at_least else 'about'} {format_duration(rounded(left_s))} left"
        text = f"{len(self._measured)} measured in {format_duration(elapsed)}{left}"
        room = self._console.width - len(f"  [] {text}")
        stops = next((words for words in _CTRL_C if len(words) + _MIN_BAR <= room), "")
        size = min(_BAR, room - len(stops))
        filled = 0 if frac is None else round(size * frac)
        bar = "" if frac is None or size < _MIN_BAR else f"[{'#' * filled}{'-' * (size - filled)}] "
        return f"  {bar}{text}{stops}"
