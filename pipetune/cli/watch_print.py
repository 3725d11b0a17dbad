"""Prints a watch: a live view, a line per window, JSON lines, or nothing until the end."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from pipetune.cli.streams import LineWriter
from pipetune.cli.watch_pace import Pace
from pipetune.records.observation import NVML
from pipetune.records.sweep import SCHEMA, to_dict
from pipetune.records.watch import Stall, Verdict, WatchStart, Window
from pipetune.report.terminal.signs import clean_lines, draws
from pipetune.report.terminal.watch_text import name_of_rank, stall_line, summary_lines, verdict_lines, window_line
from pipetune.watching.observer import Held, WatchEnd, WatchObserver

if TYPE_CHECKING:
    from pipetune.report.terminal.watch_live import LiveView

#: The live view judges the newest readings of this length (s).
_STRETCH_S = 20.0
#: At first it judges and draws this often (s). Later it does as often as what each costs allows, within these bounds
#: (s): judging many workers takes as long as several readings.
_FIRST_S, _FIRST_JUDGE_S, _FIRST_DRAW_S = 20.0, 2.0, 0.9
_JUDGE_S, _DRAW_S = (2.0, 20.0), (0.9, 4.0)
#: Text for people is not set wider than this (characters).
_WIDEST = 100
#: Where the job owns the terminal, an unchanged verdict is printed again this often (windows).
_REPEAT = 6


class WatchPrinter(WatchObserver):
    """Prints what a watch reports.

    Args:
        json_lines: JSON lines on standard output and nothing else there.
        once: only the verdict of the last window is printed.
        beside: pipetune has started the job, whose terminal it is: little is printed, and that on standard error.
    """

    def __init__(self, *, json_lines: bool, once: bool, beside: bool) -> None:
        self._job = self._title = ""
        self._json, self._once, self._beside = json_lines, once, beside
        self._live: LiveView | None = None
        self._unwritable = self._ended = False
        self._note: str | None = None
        self._notes: set[str] = set()
        self._began_s = 0.0
        self._judging, self._drawing = Pace(_FIRST_JUDGE_S, _JUDGE_S), Pace(_FIRST_DRAW_S, _DRAW_S)
        self._verdicts: tuple[Verdict, ...] = ()
        self._cause: str | None = None
        self._quiet = 0
        self._last: Window | None = None
        self._aside = LineWriter(sys.stderr)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end_live()
        self._aside.close()

    def on_start(self, record: WatchStart) -> None:
        """Print what is watched, or open the live view."""
        self._job = self._title = f"{record.title} (process {record.pid})"
        if not (self._json or self._once or self._beside) and sys.stdout.isatty():
            self._open_live()
        if self._json:
            self._line("start", to_dict(record))
        elif self._live is None and not self._beside and not self._once:
            self._print(f"watching {self._title}: {record.found}; Ctrl-C ends it")

    def on_accelerators(self, names: Sequence[str]) -> None:
        """Name the GPUs in the title."""
        if names:
            self._title = f"{self._job} on {', '.join(dict.fromkeys(names))}"

    def on_window(self, window: Window) -> None:
        """Print the verdict of a window."""
        self._last = window
        if self._json:
            self._line("window", to_dict(window))
        elif self._beside:
            cause = window.verdicts[0].cause if window.verdicts else None
            self._quiet += 1
            if cause != self._cause or self._quiet >= _REPEAT:
                self._cause, self._quiet = cause, 0
                self._say_aside(window_line(window))
        elif self._live is None and not self._once:
            self._print(window_line(window))

    def on_stall(self, stall: Stall) -> None:
        """Print a stall that has ended."""
        if self._json:
            self._line("stall", to_dict(stall))
        elif self._live is None and not self._beside and not self._once:
            began_unix_s = time.time() - (time.monotonic_ns() - stall.t_start_ns) / 1e9
            source = self._last.verdicts[0].source if self._last and self._last.verdicts else NVML
            self._print("  " + stall_line(stall, began_unix_s, source=source))

    def on_note(self, text: str) -> None:
        """Print a note, each text once; in the live view it has a line of its own."""
        if text in self._notes:
            return
        self._notes.add(text)
        self._note = text
        if self._live is None:
            self._say_aside(f"pipetune: {text}")

    def on_pause(self, held: Held) -> None:
        """Draw the live view again, if it is time."""
        if self._live is None:
            return
        now_s = time.monotonic()
        self._began_s = self._began_s or now_s
        first = now_s - self._began_s <= _FIRST_S
        if not self._drawing.due(now_s, first=first):
            return
        with held() as watcher:
            if watcher is None:
                self._live.hang("no reading for a while: the driver or the system does not answer")
                return
            if self._judging.due(now_s, first=first):
                with self._judging.counted(now_s):
                    self._verdicts = watcher.verdicts(_STRETCH_S)
            with self._drawing.counted(now_s):
                self._live.compose(watcher, self._verdicts, self._title, self._note)
        with self._drawing.counted(now_s):
            self._live.draw()  # a terminal that blocks must not delay the readings

    def on_end(self, end: WatchEnd) -> None:
        """Print the result, the run folder, and what the user asked for and did not get."""
        self._end_live()
        self._ended = True
        if self._json:
            self._line("end", to_dict(end.record))
        else:
            self._result(end)
        # Never on a standard output that holds JSON or belongs to the job.
        say = self._say_aside if self._json or self._beside else self._print
        if end.folder is not None:
            say(f"run folder: {end.folder}")
        if end.record.below is not None:
            say(f"pipetune: {end.record.below}")
        if end.lost:
            say(f"pipetune: {end.lost} records could not be written: {end.problem}")
        self._aside.close()

    def _result(self, end: WatchEnd) -> None:
        stream, say = (sys.stderr, self._say_aside) if self._beside else (sys.stdout, self._print)
        ascii_only = not draws(stream.encoding)
        # A file or a pipe has no width of its own.
        width = min(_WIDEST, shutil.get_terminal_size().columns) if stream.isatty() else _WIDEST
        if self._once:
            last = self._last.verdicts if self._last else ()
            if not last:
                say(f"{self._title}: no verdict: {end.record.reason}")
            for verdict in last:
                title = self._title if len(last) == 1 else f"{self._title}: {name_of_rank(verdict.rank, verdict.pid)}"
                for line in verdict_lines(verdict, width=width, title=title, ascii=ascii_only):
                    say(line)
            return
        say(f"{self._title}: {end.record.reason}")
        for line in summary_lines(
            end.record.verdicts, end.stalls, width=width, ascii=ascii_only, own_core_frac=end.record.own_core_frac,
            own_rss_bytes=end.record.own_rss_bytes,
        ):  # fmt: skip
            say(line)

    def _open_live(self) -> None:
        from rich.console import Console

        from pipetune.report.terminal.watch_live import LiveView

        console = Console()
        if LiveView.usable(console):
            self._live = LiveView(console).__enter__()

    def _end_live(self) -> None:
        if self._live is not None:
            self._live.__exit__()
            self._live = None

    def _line(self, kind: str, record: Mapping[str, Any]) -> None:
        self._print(json.dumps({"schema": SCHEMA, "kind": kind, **record}, allow_nan=False))

    def _say_aside(self, text: str) -> None:
        self._aside.say(clean_lines(text))

    def _print(self, text: str) -> None:
        if self._unwritable:
            return
        try:
            print(clean_lines(text), flush=True)  # noqa: T201
        except OSError:
            self._unwritable = True
            if not self._ended:  # the watch ends, and its result is written
                raise
