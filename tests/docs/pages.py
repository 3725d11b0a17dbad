"""The Markdown files that people read, taken apart: generated parts, code, commands, headings, links."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from docs import parts
from tests import ROOT

PAGES = parts.PAGES
IDS = [str(path.relative_to(ROOT)) for path in PAGES]

_FENCE = re.compile(
    r"^(?:<!-- test: (?P<test>\w+) -->\n)?```(?P<language>\w*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)
_SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_GENERATED = re.compile(r"<!-- generated: (?:(?!<!-- generated).)*?<!-- end -->|<!-- generated: .*?-->", re.DOTALL)
_HEADING = re.compile(r"^#+ (.+?)\s*(?:\{.*\})?$", re.MULTILINE)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """A block of code."""

    language: str
    code: str
    test: str | None
    """From a comment above it: what a test does with it."""


@cache
def source(path: Path) -> str:
    """As it lies in the repository."""
    return path.read_text()


@cache
def by_hand(path: Path) -> str:
    """What is not generated."""
    return _GENERATED.sub("", source(path))


@cache
def filled(path: Path) -> str:
    """As it is read in the manual: with its generated parts."""
    return parts.fill(source(path))


def blocks(path: Path, *languages: str) -> list[Block]:
    """The blocks of code that are written by hand, of some languages."""
    found = [Block(m["language"], m["code"], m["test"]) for m in _FENCE.finditer(by_hand(path))]
    return [block for block in found if block.language in languages]


def prose(path: Path) -> str:
    """What is written by hand and is no code."""
    return _SPAN.sub("`code`", _FENCE.sub("", by_hand(path)))


def spans(path: Path) -> list[str]:
    """Code inside of sentences, written by hand."""
    return _SPAN.findall(_FENCE.sub("", by_hand(path)))


def links(path: Path) -> list[str]:
    """Targets of all links and pictures, generated ones too."""
    return _LINK.findall(_SPAN.sub("", _FENCE.sub("", filled(path))))


def anchors(path: Path) -> set[str]:
    """Names of the headings, as mkdocs makes them."""
    plain = [re.sub(r"[`*\[\]]|\([^)]*\)", "", heading) for heading in _HEADING.findall(_FENCE.sub("", filled(path)))]
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in plain}


def shell_commands(path: Path) -> list[list[str]]:
    """Every command of its shell blocks, and those inside of sentences that name one of pipetune's options.

    Commands that are joined by a pipe or ``||`` are commands of their own.
    """
    lines = [line for block in blocks(path, "sh") for line in block.code.replace("\\\n", " ").splitlines()]
    lines += [span for span in spans(path) if re.match(r"pipetune \w+ .*[\w]", span)]
    commands: list[list[str]] = []
    for line in lines:
        command: list[str] = []
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;")
        lexer.whitespace_split, lexer.commenters = True, "#"
        for word in lexer:
            if set(word) <= set("|&;"):
                commands.append(command)
                command = []
            else:
                command.append(word)
        commands.append(command)
    return [command for command in commands if command]
