"""Bars, a rank's utilisation as a row of characters, and text that is safe to print. Pure.

Names of processes and functions come from other programs. Characters in them that cannot be printed are replaced, so
that an escape sequence in a process name does not reach the terminal.

Why not rich's ``strip_control_codes``: it leaves escape, line feeds and marks of writing direction as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pipetune.diagnosis.stalls import BEGINS_BELOW, busy_of
from pipetune.records.observation import LOADER_WAIT, RankReading

_LEVELS, _ASCII_LEVELS = "▁▂▃▄▅▆▇█", " .:-=+*#%@"
_EIGHTHS = " ▏▎▍▌▋▊▉"
_UNKNOWN, _STALLED = "·", "^"
_TO_ASCII = str.maketrans({"±": "+-", "…": "...", "·": ".", "→": "->", "–": "-", "’": "'", "×": "x"})


def clean(text: str, *, ascii: bool = False) -> str:
    """``text`` as one line that is safe to print: control characters and line breaks become ``?``."""
    if ascii and not text.isascii():
        text = text.translate(_TO_ASCII).encode("ascii", "replace").decode("ascii")
    return text if text.isprintable() else "".join(sign if sign.isprintable() else "?" for sign in text)


def clean_lines(text: str) -> str:
    """``text`` with its line breaks, safe to print: see :func:`clean`. Everything that is printed goes through this."""
    return text if text.isprintable() else "\n".join(clean(line) for line in text.split("\n"))


def draws(encoding: str | None) -> bool:
    """Whether this encoding has the characters of bars and timelines."""
    try:
        (_LEVELS + _EIGHTHS + "·…±").encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def bar(frac: float, width: int, *, ascii: bool = False) -> str:
    """A bar that fills ``frac`` (0..1) of ``width`` characters, to an eighth of one; padded with spaces."""
    eighths = round(8 * width * min(1.0, max(0.0, frac)))
    if ascii:
        return ("#" * round(eighths / 8)).ljust(width)
    return ("█" * (eighths // 8) + _EIGHTHS[eighths % 8]).ljust(width)[:width]


def busy_points(readings: Iterable[RankReading]) -> list[float | None]:
    """Per reading, the share of the time in which the accelerator was busy; see :func:`busy_of`."""
    return [
        busy_of(reading) if reading.source == LOADER_WAIT or reading.busy_frac is not None else None
        for reading in readings
    ]


def timeline_of(points: Sequence[float | None], columns: int, *, ascii: bool = False) -> tuple[str, str]:
    """A row of at most ``columns`` characters, the newest at the right, and a row that marks stalls.

    A column is marked if the accelerator was idle in any of its readings: a mean would hide a stall.

    Args:
        points: busy shares (0..1), oldest first; ``None``: not known.
        columns: how many characters there is room for.
        ascii: use ASCII characters only.
    """
    levels = _ASCII_LEVELS if ascii else _LEVELS
    row, marks = [], []
    size = 1
    while size * max(1, columns) < len(points):
        size *= 2  # so that the columns of a growing row seldom change
    for first in range(0, len(points), size):
        known = [point for point in points[first : first + size] if point is not None]
        if not known:
            row.append("?" if ascii else _UNKNOWN)
            marks.append(" ")
            continue
        row.append(levels[max(0, min(len(levels) - 1, int(len(levels) * sum(known) / len(known))))])
        marks.append(_STALLED if min(known) < BEGINS_BELOW else " ")
    return "".join(row), "".join(marks)


def stretches(row: str, marks: str) -> Iterable[tuple[str, bool]]:
    """Parts of the row, and whether each is stalled."""
    start = 0
    for at in range(1, len(row) + 1):
        if at == len(row) or marks[at] != marks[start]:
            yield row[start:at], marks[start] != " "
            start = at
