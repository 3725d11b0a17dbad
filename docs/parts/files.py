"""Files of the repository as pages of the manual."""

from __future__ import annotations

from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]


def included(name: str) -> str:
    """A Markdown file of the repository's root; its links into ``docs/`` lead to the manual's pages.

    For a page one folder below ``docs/``.
    """
    return (_ROOT / name).read_text().replace("](docs/", "](../")
