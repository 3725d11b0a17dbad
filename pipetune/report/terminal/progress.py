"""What is shown while a sweep runs: a live view on a terminal, plain lines elsewhere. Always on standard error."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Self

from pipetune.candidates.describe import describe
from pipetune.measure.harness import Live
from pipetune.records.sweep import AcceleratorSpec, Outcome
from pipetune.report.columns import format_interval
from pipetune.sweeping.observer import Event, SweepObserver
from pipetune.units import format_duration, format_rate

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_PHASES = {
    "page cache": "reading the images into the page cache",
    "spawn": "starting a process",
    "open": "importing, opening",
    "first_batch": "waiting for the first batch",
    "warmup": "warming up",
    "timed": "measuring",
    "close": "ending",
    "check": "an image does not decode: trying all of them",
}


#: Without a terminal, a slow stage reports its progress after this time, and then this often (s).
_FIRST_LINE_S = 1.0
_SECONDS_PER_LINE = 3.0


class Display(SweepObserver):
    """Shows progress; a context manager. Without a terminal it prints one line per finished candidate."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._budget_s: float | None = None
        self._mark = ""
        self._candidates: int | None = None
        self._spent_s: dict[str, float] = {}
        self._began = time.monotonic()
        self._event: Event | None = None
        self._done: list[str] = []
        self._stage = ""
        self._live: object | None = None
        self._open = contextlib.ExitStack()
        self._next_line = self._began + _FIRST_LINE_S

    def __enter__(self) -> Self:
        if self._console.is_terminal:
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
            self._next_line = now + _SECONDS_PER_LINE

    def on_start(self, accelerator: AcceleratorSpec, max_candidates: int, budget_s: float | None) -> None:
        """Measuring begins."""
        self._mark = "EMULATED " if accelerator.kind == "emulated" else ""
        self._candidates, self._budget_s = max_candidates, budget_s
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
        if outcome.role != "ceiling":
            self._spent_s[outcome.candidate.key] = outcome.wall_s
        self._done.append(outcome_line(outcome, self._mark))

    def on_outcome(self, outcome: Outcome) -> None:
        """A candidate is done."""
        line = outcome_line(outcome, self._mark)
        if outcome.role != "ceiling":
            # A repeat adds to the time of its candidate, so that the estimate of the remaining time includes repeats.
            spent = self._spent_s.get(outcome.candidate.key, 0.0)
            self._spent_s[outcome.candidate.key] = spent + outcome.wall_s
        self._done.append(line)
        self._event = None
        self._print(line)

    def _print(self, line: str) -> None:
        """Print a plain line, if there is no live view."""
        if self._live is None:
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _render(self) -> RenderableType:
        from rich.text import Text

        return Text("\n".join(self.lines(max(3, self._console.height - 4))), overflow="ellipsis", no_wrap=True)

    def lines(self, room: int) -> list[str]:
        """The newest ``room`` candidates that are done, the running one, and the time."""
        lines = self._done[-room:]
        if self._stage:
            lines.append(f"… {self._stage}")
        if self._event is not None:
            lines.append(f"… {_label(self._event)}: {_live_text(self._event.live, self._mark)}")
        lines.append(self._clock())
        return lines

    @property
    def done(self) -> tuple[str, ...]:
        """One line per finished candidate."""
        return tuple(self._done)

    @property
    def progress(self) -> tuple[int, int | None]:
        """Candidates that are done, and how many there are at most."""
        return len(self._spent_s), self._candidates

    def _clock(self) -> str:
        elapsed = time.monotonic() - self._began
        left = ""
        if self._candidates is not None and self._spent_s:
            mean_s = sum(self._spent_s.values()) / len(self._spent_s)
            remaining_s = mean_s * max(0, self._candidates - len(self._spent_s))
            if self._budget_s is not None:
                remaining_s = min(remaining_s, max(0.0, self._budget_s - elapsed))
            left = f", at most {format_duration(remaining_s)} left"
        done = f"{len(self._done)} measured in {format_duration(elapsed)}"
        return f"  {done}{left}; Ctrl-C stops and keeps what was measured"


def _label(event: Event) -> str:
    what = "max ingestion rate" if event.role == "ceiling" else describe(event.candidate)
    return f"{what} (again)" if event.attempt > 1 else what


def _live_text(live: Live, emulated: str) -> str:
    parts = [_PHASES.get(live.phase, live.phase)]
    if live.images_done is not None:
        parts.append(f"{live.images_done:,} images")
    if live.samples_per_s is not None:
        parts.append(format_rate(live.samples_per_s))
    if live.idle_frac is not None:
        parts.append(f"{emulated}util {100 * (1 - live.idle_frac):.0f} %")
    if live.data_wait_frac is not None:
        parts.append(f"data wait {100 * live.data_wait_frac:.0f} %")
    return ", ".join(parts)


def outcome_line(outcome: Outcome, emulated: str = "") -> str:
    """A finished candidate; ``emulated`` marks figures of an emulated accelerator."""
    what = "max ingestion rate" if outcome.role == "ceiling" else describe(outcome.candidate)
    again = " (again)" if outcome.attempt > 1 else ""
    m = outcome.measurement
    if m is None:
        failure = outcome.failure
        reason = f"{failure.kind}: {failure.message}" if failure else "no result"
        return f"✗ {what}{again}: {reason}"
    share = "" if m.goodput is None else f", goodput {100 * m.goodput:.0f} %"
    util = "" if m.gpu_util_pct is None else f", {emulated}util {m.gpu_util_pct:.0f} %"
    return f"✓ {what}{again}: {format_interval(m)}{share}{util}, data wait {100 * m.data_wait_frac:.0f} %"
