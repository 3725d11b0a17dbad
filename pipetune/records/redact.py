"""Command lines without their secrets, to be stored and shown. Pure.

What a process was started with can hold passwords and tokens. It is kept readable otherwise, because it names the job.
Values are recognised by the name before them: a secret under a name that says nothing about it stays.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

#: What stands in place of a secret.
HIDDEN = "***"
#: Parts of names, in any case, whose values are secrets.
SECRET_NAMES = ("token", "key", "secret", "password", "passwd", "credential", "auth")

_NAME = f"(?:{'|'.join(SECRET_NAMES)})"
#: A text in quotation marks, a word, or from an opening bracket on everything.
_VALUE = r"""(?:(?:bearer|basic|token)\s+)?(?:\*\*\*(?!\w)|\w?(?:"[^"]*"|'[^']*')|[\[{(].*|\S+)"""
#: ``--api-key``: the next word is its value. Lengths are bounded, because anybody chooses a command line.
_OPTION = re.compile(rf"--?[\w.-]{{0,80}}?{_NAME}[\w.-]{{0,80}}", re.IGNORECASE)
#: A word that begins as ``--api-key=VALUE`` or ``HF_TOKEN=VALUE`` does: everything behind is the value.
_WORD = re.compile(rf"[\w.+-]{{0,80}}?{_NAME}[\w.-]{{0,80}}=", re.IGNORECASE)
#: ``--api-key=VALUE``, ``HF_TOKEN=VALUE``, ``Authorization: Bearer VALUE`` inside of a word that is code.
_ASSIGNED = re.compile(
    rf"""({_NAME}[\w.-]{{0,80}}["'\]]{{0,2}}\s{{0,9}}[=:]\s{{0,9}}){_VALUE}""", re.IGNORECASE | re.DOTALL
)
#: ``--api-key VALUE`` inside of one word, as in ``sh -c '…'``.
_SPACED = re.compile(rf"""((?<![\w-]){_OPTION.pattern}\s{{1,9}})(?!-)(?:"[^"]*"|'[^']*'|\S+)""", re.IGNORECASE)
#: ``https://NAME:PASSWORD@HOST``.
_IN_URL = re.compile(r"(?<=://)[^/\s]*@")


def redact_words(command: Iterable[str]) -> tuple[str, ...]:
    """The words of a command line, each secret replaced by ``***``: see :data:`SECRET_NAMES`."""
    found: list[str] = []
    is_value = False
    for word in command:
        begins = _WORD.match(word)
        if is_value and not word.startswith("-"):
            hidden = HIDDEN
        else:
            hidden = redact_text(word) if begins is None else word[: begins.end()] + HIDDEN
        is_value = _OPTION.fullmatch(word) is not None
        found.append(hidden)
    return tuple(found)


def redact_line(line: str) -> str:
    """A command line as a shell takes it, the same way; as text where it has an odd quotation mark."""
    try:
        words = shlex.split(line)
    except ValueError:
        return redact_text(line)
    hidden = redact_words(words)
    return line if list(hidden) == words else shlex.join(hidden)


def redact_text(text: str) -> str:
    """Any text, the same way: values after ``=``, ``:`` or an option, and who is named in a URL."""
    text = _IN_URL.sub(f"{HIDDEN}@", text)
    return _SPACED.sub(rf"\g<1>{HIDDEN}", _ASSIGNED.sub(rf"\g<1>{HIDDEN}", text))
