"""The live view of ``pipetune watch`` on a terminal.

Its cost is part of pipetune's own cost, so it is drawn only on request, and from rich's segments, which take a third of
the time of a ``Text``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from pipetune.records.observation import RankReading
from pipetune.records.watch import Verdict
from pipetune.report.terminal import watch_sections as sections
from pipetune.report.terminal.screen import Layout, Screen, Section, StyledLine
from pipetune.report.terminal.signs import busy_points, draws

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live

    from pipetune.watching.watcher import Watcher

_MIN_WIDTH, _MIN_HEIGHT = 40, 10
#: Readings in a timeline, and how many of the oldest are dropped at once. The latter is a multiple of the readings in a
#: column, so that columns keep their readings and do not flicker.
_KEPT, _DROPPED = 512, 64


class LiveView:
    """Shows the newest verdicts and readings; a context manager. Removes itself from the terminal at the end.

    Args:
        console: the terminal; see :meth:`usable`.
        hint: which key does what.
    """

    def __init__(self, console: Console, hint: str = "Ctrl-C ends it") -> None:
        self._console, self._hint = console, hint
        self._ascii = not draws(console.encoding)
        self._live: Live | None = None
        self._size = (0, 0)
        self._began_ns: int | None = None
        self._points: dict[int, _Points] = {}
        self._parts: tuple[Verdict, int, dict[Section, list[StyledLine]]] | None = None
        self.lines: list[StyledLine] = []
        """The lines composed last, from top to bottom."""

    @staticmethod
    def usable(console: Console) -> bool:
        """Whether the view can be drawn on this terminal; if not, print a line per window instead."""
        large = console.width >= _MIN_WIDTH and console.height >= _MIN_HEIGHT
        return console.is_terminal and not console.is_dumb_terminal and large

    def __enter__(self) -> Self:
        from rich.live import Live

        # Lines that are printed at the same time appear above the view, not in it.
        self._live = Live(console=self._console, auto_refresh=False, transient=True, vertical_overflow="crop")
        self._live.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def compose(self, watcher: Watcher, verdicts: Sequence[Verdict], title: str, note: str | None = None) -> None:
        """Make the lines from the watcher. Does not write to the terminal, which may block.

        Args:
            watcher: the readings and stalls.
            verdicts: of the newest window, the worst rank first. One that is shown already is not wrapped again.
            title: what is watched.
            note: anything else that happened, for a line of its own.
        """
        size = self._console.size
        width = size.width
        # The last line stays free for the cursor.
        taken = Layout(size.height - 1)
        readings = watcher.machine
        if readings and self._began_ns is None:
            self._began_ns = readings[0].t_ns
        elapsed_s = (readings[-1].t_ns - (self._began_ns or 0)) / 1e9 if readings else 0.0
        source = verdicts[0].source if verdicts and verdicts[0].lost_frac is not None else None
        taken.add(Section.TITLE, [sections.title_line(title, elapsed_s, source, width)])
        taken.add(Section.FOOT, [sections.foot_line(reversed(readings), self._hint)])
        taken.add(Section.NOTE, [[(note, sections.WARN)]] if note else [])
        if verdicts:
            self._add_ranks(taken, watcher, verdicts, width, tall=size.height >= 24)
        else:
            taken.add(Section.MAIN, [[("no training process seen yet", "")]])
            taken.add(Section.MACHINE, sections.machine_lines(reversed(readings), width))
            taken.set_apart()
        self.lines = taken.lines()

    def draw(self) -> None:
        """Draw the lines composed last."""
        size = (self._console.width, self._console.height)
        if self._live is None:
            return
        if self._size not in ((0, 0), size):
            # After a change of size the terminal has wrapped the lines again, so how many to erase is unknown.
            self._console.clear()
        self._size = size
        self._live.update(Screen(self.lines[: size[1] - 1], size[0], ascii=self._ascii), refresh=True)

    def hang(self, note: str) -> None:
        """Draw the last state again, with a note that no newer one is available."""
        kept = [line for line in self.lines[1:] if line != [(note, sections.BAD)]]
        if len(kept) > 1 and len(kept) + 2 >= self._size[1]:
            # Make room for the note: drop an empty line, or else the last but one.
            del kept[kept.index([]) if [] in kept else -2]
        self.lines = [*self.lines[:1], [(note, sections.BAD)], *kept]
        self.draw()

    def _add_ranks(
        self, taken: Layout, watcher: Watcher, verdicts: Sequence[Verdict], width: int, *, tall: bool
    ) -> None:
        worst, alone, now_ns = verdicts[0], len(verdicts) == 1, watcher.machine[-1].t_ns
        readings = watcher.readings_of(worst.pid)
        newest = readings[-1] if readings else None
        parts = self._parts_of(worst, width)
        stalls = sections.stall_lines(watcher.history.stalls, now_ns, alone=alone)
        limit = 6 if tall else 3
        taken.add(Section.RANKS, self._rank_lines(worst, readings, watcher, width, alone))
        taken.add(Section.VERDICT, _limited(parts[Section.VERDICT], limit))
        taken.add(Section.SHARES, parts[Section.SHARES][:limit])
        taken.add(Section.ADVICE, _limited(parts[Section.ADVICE], limit))
        taken.add(Section.MACHINE, sections.machine_lines(reversed(watcher.machine), width))
        taken.add(Section.MAIN, sections.main_line(worst))
        taken.add(Section.LOADER, sections.loader_line(newest))
        taken.add(Section.STALLS, stalls[:1])
        taken.add(Section.MISSING, parts[Section.MISSING])
        # Half of the remaining room is for other ranks, with two lines each; the rest is for the workers.
        shown = 1 + taken.room // 4
        for verdict in verdicts[1:shown]:
            taken.add(Section.RANKS, self._rank_lines(verdict, watcher.readings_of(verdict.pid), watcher, width, alone))
        taken.add(Section.RANKS, sections.other_ranks_line(verdicts[shown:]))
        if tall:
            taken.set_apart()
        taken.add(Section.LOADER, sections.worker_lines(newest, worst, taken.room, ascii=self._ascii))
        taken.add(Section.STALLS, stalls[1:])
        taken.add(Section.EVIDENCE, _limited(parts[Section.EVIDENCE], taken.room))

    def _rank_lines(
        self, verdict: Verdict, readings: Sequence[RankReading], watcher: Watcher, width: int, alone: bool
    ) -> list[StyledLine]:
        points = self._points.setdefault(verdict.pid, _Points())
        points.take(readings)
        since_ns = watcher.stalled_since_ns(verdict.pid)
        stalled_s = None if since_ns is None else (watcher.machine[-1].t_ns - since_ns) / 1e9
        track = sections.Track(points=points.busy, seconds=sum(points.spans_s), stalled_s=stalled_s)
        return sections.rank_lines(verdict, track, width, ascii=self._ascii, alone=alone)

    def _parts_of(self, verdict: Verdict, width: int) -> dict[Section, list[StyledLine]]:
        if self._parts is None or self._parts[0] is not verdict or self._parts[1] != width:
            self._parts = (verdict, width, sections.verdict_parts(verdict, width, ascii=self._ascii))
        return self._parts[2]


@dataclass(slots=True)
class _Points:
    """The points of a timeline: computed once per reading, and kept."""

    busy: list[float | None] = field(default_factory=list)
    spans_s: list[float] = field(default_factory=list)
    last_ns: int = 0

    def take(self, readings: Sequence[RankReading]) -> None:
        new: list[RankReading] = []
        for reading in reversed(readings):
            if reading.t_ns <= self.last_ns or len(new) == _KEPT:
                break
            new.append(reading)
        if not new:
            return
        new.reverse()
        self.last_ns = new[-1].t_ns
        self.busy += busy_points(new)
        self.spans_s += [reading.interval_s for reading in new]
        while len(self.busy) >= _KEPT + _DROPPED:
            del self.busy[:_DROPPED], self.spans_s[:_DROPPED]


def _limited(lines: list[StyledLine], limit: int) -> list[StyledLine]:
    """The first lines; the last of them shows that there is more."""
    if len(lines) <= limit or limit < 1:
        return lines[: max(0, limit)]
    text, style = lines[limit - 1][0]
    return [*lines[: limit - 1], [(text.rsplit(" ", 1)[0] + " …", style)]]
