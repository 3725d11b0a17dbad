"""Parts of the manual that are generated: from the package's tables, its command line and the stored results.

A page asks for one with a line ``<!-- generated: NAME -->``; arguments follow the name. A file that is read as it lies
in the repository (README.md) keeps the generated text between that line and ``<!-- end -->``:
``python -m docs.parts README.md`` brings it up to date, and a test compares.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from docs.parts import commands, examples, files, promises, tables

ROOT = Path(__file__).resolve().parents[2]

#: Name -> what makes the text (Markdown), given the words after the name.
PARTS: dict[str, Callable[..., str]] = {
    "accelerators": tables.accelerators,
    "causes": tables.causes,
    "criteria": tables.criteria,
    "decoders": tables.decoders,
    "example": examples.shown,
    "file": files.included,
    "metrics": tables.metrics,
    "options": commands.options,
    "promises": promises.promises,
    "results": promises.section,
    "rooms": tables.rooms,
    "schema": tables.schema,
    "settings": tables.settings,
    "thresholds": tables.thresholds,
}

_MARK = re.compile(
    r"^<!-- generated: (?P<words>[^\n]*?) -->\n"
    r"(?:(?:(?!<!-- generated).)*?\n?<!-- end -->\n?)?",
    re.MULTILINE | re.DOTALL,
)


class UnknownPart(Exception):
    """A page asks for a part that there is not."""


def part(words: str) -> str:
    """The text that ``<!-- generated: WORDS -->`` stands for.

    Raises:
        UnknownPart: there is none of that name.
    """
    name, *arguments = words.split()
    if name not in PARTS:
        raise UnknownPart(f"no part is called {name!r}; there are {', '.join(PARTS)}")
    return PARTS[name](*arguments)


def fill(markdown: str, *, keep_marks: bool = False) -> str:
    """A page with its generated parts in place.

    Args:
        markdown: the page.
        keep_marks: leave the marks around what is generated, so that it can be generated again.
    """

    def replaced(found: re.Match[str]) -> str:
        text = part(found["words"]).strip("\n")
        return f"<!-- generated: {found['words']} -->\n{text}\n<!-- end -->\n" if keep_marks else f"\n{text}\n"

    return _MARK.sub(replaced, markdown)
