"""Parts of the manual that are generated: from the package's tables, its command line and the stored results.

A page asks for one with a line ``<!-- generated: NAME -->``; arguments follow the name. The generated text is kept
between that line and ``<!-- end -->``, because the pages are also read as they lie in the repository:
``python -m docs.parts`` brings it up to date, and a test compares. Only whole files of the repository (``file``) are
left to the built site.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from docs.parts import augmentation, commands, examples, files, limits, promises, stages, tables

ROOT = Path(__file__).resolve().parents[2]
#: What people read.
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
_WHOLE_FILE = "file"

#: Name -> what makes the text (Markdown), given the words after the name.
PARTS: dict[str, Callable[..., str]] = {
    "accelerators": tables.accelerators,
    "augmentation": augmentation.recipes,
    "causes": tables.causes,
    "criteria": tables.criteria,
    "decoders": tables.decoders,
    "disks": tables.disks,
    "example": examples.shown,
    _WHOLE_FILE: files.included,
    "limits": limits.limits,
    "metrics": tables.metrics,
    "options": commands.options,
    "packages": tables.packages,
    "progress": tables.progress,
    "promises": promises.promises,
    "results": promises.section,
    "rights": limits.rights,
    "schema": tables.schema,
    "stages": stages.stages,
    "secrets": limits.secrets,
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
        keep_marks: as it is kept in the repository: with the marks around what is generated.
    """

    def replaced(found: re.Match[str]) -> str:
        if keep_marks and found["words"].split()[0] == _WHOLE_FILE:
            return found[0]
        text = part(found["words"]).strip("\n")
        return f"<!-- generated: {found['words']} -->\n{text}\n<!-- end -->\n" if keep_marks else f"\n{text}\n"

    return _MARK.sub(replaced, markdown)
