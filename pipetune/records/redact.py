"""Command lines without their secrets, to be stored and shown. Pure.

What a process was started with can hold passwords and tokens. It is kept readable otherwise, because it names the job.
Values are recognised by the name before them: a secret under a name that says nothing about it stays.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence

#: What stands in place of a secret.
HIDDEN = "***"
#: Parts of names, in any case, whose values are secrets.
SECRET_NAMES = ("token", "key", "secret", "password", "passwd", "credential", "auth")
#: How harmless words go on that begin as one of them: tokenizer, keypoints, keyframes, author.
_HARMLESS = {"token": "iz|is", "key": "point|frame|word|board|stone", "auth": "or(?!i[sz])"}

_NAME = "(?:" + "|".join(
    f"{name}(?!{_HARMLESS[name]})" if name in _HARMLESS else name for name in SECRET_NAMES
) + ")"  # fmt: skip
#: Several of them and a number, as in ``--max-tokens 512``: how many there are.
_SEVERAL = re.compile(r"(?:token|key)s\W*", re.IGNORECASE)
_NUMBER = re.compile(r"[\d_.]{1,9}[)\]},;]*")
#: A text in quotation marks, a word, or from an opening bracket on everything.
_VALUE = r"""(?:(?:bearer|basic|token)\s+)?(?:\*\*\*(?!\w)|\w?(?:"[^"]*"|'[^']*')|[\[{(].*|\S+)"""
#: ``--api-key``: the next word is its value. Lengths are bounded, because anybody chooses a command line.
_OPTION = re.compile(rf"--?[\w.-]{{0,80}}?{_NAME}[\w.-]{{0,80}}", re.IGNORECASE)
#: A word that begins as ``--api-key=VALUE`` or ``HF_TOKEN=VALUE`` does: everything behind is the value.
_WORD = re.compile(rf"[\w.+-]{{0,80}}?{_NAME}[\w.-]{{0,80}}=", re.IGNORECASE)
#: ``--api-key=VALUE``, ``HF_TOKEN=VALUE``, ``Authorization: Bearer VALUE`` inside of a word that is code.
_ASSIGNED = re.compile(
    rf"""({_NAME}[\w.-]{{0,80}}["'\]]{{0,2}}\s{{0,9}}[=:]\s{{0,9}})({_VALUE})""", re.IGNORECASE | re.DOTALL
)
#: ``--api-key VALUE`` inside of one word, as in ``sh -c '…'``.
_SPACED = re.compile(rf"""((?<![\w-]){_OPTION.pattern}\s{{1,9}})(?!-)("[^"]*"|'[^']*'|\S+)""", re.IGNORECASE)
#: ``https://NAME:PASSWORD@HOST``.
_IN_URL = re.compile(r"(?<=://)[^/\s]*@")


def own_command(argv: Sequence[str]) -> str:
    """This program's command line as a shell would start it, without secrets; ``""``: it is not pipetune's own.

    A notebook or a script that calls pipetune has a command line of its own, which does not do the same again.
    """
    folder, _, name = argv[0].rpartition("/") if argv else ("", "", "")
    if name == "__main__.py" and folder.rpartition("/")[2] == "pipetune":
        return shlex.join(redact_words(["python", "-m", "pipetune", *argv[1:]]))
    return shlex.join(redact_words(argv)) if name == "pipetune" else ""


def redact_words(command: Iterable[str]) -> tuple[str, ...]:
    """The words of a command line, each secret replaced by ``***``: see :data:`SECRET_NAMES`."""
    found: list[str] = []
    option: str | None = None
    for word in command:
        begins = _WORD.match(word)
        if option is not None and not word.startswith("-"):
            hidden = _hidden(option, word)
        elif begins is not None:
            hidden = begins[0] + _hidden(begins[0], word[begins.end() :])
        else:
            hidden = redact_text(word)
        option = word if _OPTION.fullmatch(word) else None
        found.append(hidden)
    return tuple(found)


def _hidden(name: str, value: str) -> str:
    """What is shown of the value behind a name that is a secret's, unless it says how many there are."""
    end = name.rstrip("=: \t\n")
    several = _SEVERAL.search(end)
    return value if several is not None and several.end() == len(end) and _NUMBER.fullmatch(value) else HIDDEN


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
    for pattern in (_ASSIGNED, _SPACED):
        text = pattern.sub(lambda found: found[1] + _hidden(found[1], found[2]), text)
    return text
