"""Styled lines of the live view: which of them a small terminal shows, and how rich prints them."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from pipetune.report.terminal.signs import clean

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

#: Pieces of text, each with the style that rich gives it.
StyledLine = list[tuple[str, str]]


class Section(StrEnum):
    """The parts of the live view, from top to bottom."""

    TITLE = "title"
    NOTE = "note"
    RANKS = "ranks"
    MACHINE = "machine"
    MAIN = "main"
    LOADER = "loader"
    VERDICT = "verdict"
    SHARES = "shares"
    ADVICE = "advice"
    EVIDENCE = "evidence"
    MISSING = "missing"
    STALLS = "stalls"
    FOOT = "foot"


#: Sections with an empty line above them, where there is room for all of these.
_APART = (Section.RANKS, Section.MACHINE, Section.LOADER, Section.VERDICT, Section.STALLS, Section.FOOT)


class Layout:
    """Collects the lines that fit. Add the most important sections first; they are shown in the order of the screen."""

    def __init__(self, height: int) -> None:
        self.room = height
        self._sections: dict[Section, list[StyledLine]] = {}
        self._apart = False

    def add(self, section: Section, lines: Sequence[StyledLine]) -> None:
        """Add as many of ``lines`` as there is room for."""
        taken = lines[: max(0, self.room)]
        self._sections.setdefault(section, []).extend(taken)
        self.room -= len(taken)

    def set_apart(self) -> None:
        """Reserve room for empty lines above the sections so far."""
        empty = sum(bool(self._sections.get(name)) for name in _APART)
        if not self._apart and empty <= self.room:
            self._apart = True
            self.room -= empty

    def lines(self) -> list[StyledLine]:
        """All lines that fit, from top to bottom."""
        found: list[StyledLine] = []
        for name in Section:
            section = self._sections.get(name, [])
            found += [[]] if section and self._apart and name in _APART else []
            found += section
        return found


class Screen:
    """Prints ``lines`` through rich, cut to ``width`` cells and without control characters."""

    def __init__(self, lines: Sequence[StyledLine], width: int, *, ascii: bool) -> None:
        self._lines, self._width, self._ascii = lines, width, ascii

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.cells import cell_len, set_cell_size
        from rich.segment import Segment
        from rich.style import Style

        more = ".." if self._ascii else "…"
        for number, line in enumerate(self._lines):
            if number:
                yield Segment.line()
            room = self._width
            for raw, style in line:
                text = clean(raw, ascii=self._ascii)
                needed = len(text) if text.isascii() else cell_len(text)
                if needed > room:
                    text = set_cell_size(text, room - len(more)) + more if room > len(more) else more[:room]
                yield Segment(text, Style.parse(style) if style else None)
                if needed > room:
                    break
                room -= needed
