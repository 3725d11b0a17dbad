"""Markdown from values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], align: str = "") -> str:
    """A table.

    Args:
        headings: of the columns.
        rows: cells, which may hold Markdown.
        align: a letter per column, ``l`` or ``r``; all to the left unless given.
    """
    rule = ["---:" if letter == "r" else "---" for letter in align.ljust(len(headings), "l")]
    lines = [headings, rule, *([_cell(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def folded(title: str, body: str) -> str:
    """Markdown that a reader opens by its title; as it lies in the repository, too, and not only in the manual."""
    return f'<details class="note" markdown>\n<summary>{title}</summary>\n\n{body}\n\n</details>'


def code(value: object) -> str:
    """As code."""
    return f"`{value}`"


def sentence(text: str) -> str:
    """With a capital letter and a full stop."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}." if text else ""
