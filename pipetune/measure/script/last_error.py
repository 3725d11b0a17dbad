"""What a script died of, read from its output: the exception's own line, and where in the user's files it was. Pure.

The output is that of all its processes, mixed: tracebacks of Python 3.11 and later with their marks, chained ones,
those that a loader worker or a spawned process hands on, exception groups, syntax errors, rich's boxes; of several
ranks with torch's or torchrun's prefixes, as ``[rank1]: ValueError: no data`` and ``[default1]:``, and torchrun's own
report::

    Root Cause (first observed failure):
    [0]:
      time      : 2026-11-28_05:00:00
      rank      : 1 (local_rank: 1)
      exitcode  : -9 (pid: 4711)
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
#: ``[rank1]: ``, ``[default1]:`` and ``[1]:``; a line may have several.
_RANK = re.compile(r"^\[(?:[a-z_]*?)(\d+)\]:\s?")
_HEADER = "Traceback (most recent call last)"
_FRAME = re.compile(r'^\s*File "(.+?)", line (\d+)(?:, in .+)?$')
#: Of rich: ``│ /job/train.py:12 in main    │``.
_RICH_FRAME = re.compile(r"^│ (\S.*?):(\d+) in \S+\s*│$")
#: A whole line of an exception: its name, which may be qualified, and its message.
_EXCEPTION = re.compile(r"^((?:(?:\w+|<locals>)\.)*[A-Za-z_]\w*)(?::(?:\s.*|$)|$)")
#: What an exception group draws before its lines: ``  | ``, ``  +-+---------------- 1 ----------------``.
_DRAWN = re.compile(r"^\s*(?:\||\+)[-+ ]*(?:\d+ -+)?\s?")
_SYNTAX = ("SyntaxError", "IndentationError", "TabError")
#: Exceptions of launchers, which say that another process has failed.
_LAUNCHERS = ("ChildFailedError", "CalledProcessError", "SignalException", "ProcessExitedException")
#: Begins of lines before a traceback that ends no script.
_HARMLESS = ("Exception ignored in", "--- Logging error ---", "Exception in thread", "Error in atexit")
#: What a rank says whose peer has ended.
_CONSEQUENCE = re.compile(
    r"Connection (?:closed|reset|refused)|Broken pipe|DistBackendError|DistStoreError|Broken process group|"
    r"NCCL (?:error|communicator was aborted)|SIGTERM"
)
_ROOT_CAUSE = re.compile(r"Root Cause \(first observed failure\):.*?rank\s+: (\d+).*?exitcode\s+: (-?\d+)", re.DOTALL)
#: ``RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed. `` (torch, in the words of strsignal(3)).
_WORKERS_SIGNAL = re.compile(r"is killed by signal: ([^.]+)")
_MAX_LENGTH = 300
#: The package that this file is of: its frames are not the script's.
_OURS = str(Path(__file__).resolve().parents[2]) + os.sep
_LIBRARIES = ("/site-packages/", "/dist-packages/", "/lib/python3")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptException:
    """The exception that ended a script."""

    text: str
    """Its own line: ``ValueError: no data``."""
    file: str | None = None
    """The user's file that was the last to run; ``None``: only libraries are in the traceback, or there is none."""
    line: int | None = None
    """In the file, from 1."""
    rank: int | None = None
    """Of several; ``None``: it is not said."""
    signal: int | None = None
    """That ended the rank, which has printed no exception."""
    before: tuple[str, ...] = ()
    """Lines of the exceptions that were raised before it in the same process, as in a chain."""

    def in_words(self, folder: str) -> str:
        """``ValueError: no data (train.py:12, rank 1)``.

        Args:
            folder: files below it are named without it.
        """
        place = [] if self.file is None else [f"{shorten_path(self.file, folder)}:{self.line}"]
        place += [] if self.rank is None else [f"rank {self.rank}"]
        return f"{self.text} ({', '.join(place)})" if place else self.text


@dataclass(slots=True)
class _Block:
    """A traceback while it is read."""

    rank: int | None
    order: int
    harmless: bool = False
    frames: list[tuple[str, int]] = field(default_factory=list)
    text: str = ""

    @property
    def is_launcher(self) -> bool:
        return self.text.partition(":")[0].rpartition(".")[2] in _LAUNCHERS


def find_exception(output: str) -> ScriptException | None:
    """The exception that has ended the script; ``None``: none was printed.

    Args:
        output: the end of what all its processes have printed.
    """
    streams: dict[int | None, list[tuple[int, str]]] = {}
    for order, line in enumerate(_ANSI.sub("", output).splitlines()):
        rank, text = _split_rank(line)
        streams.setdefault(rank, []).append((order, text))
    blocks = [block for rank, lines in streams.items() for block in _read_blocks(rank, lines)]
    blocks.sort(key=lambda block: block.order)
    serious = [block for block in blocks if not block.harmless] or blocks
    raised = [block for block in serious if not block.is_launcher]
    root = _ROOT_CAUSE.search(output)
    launched = root is not None or len(raised) < len(serious)
    chosen = _choose(raised, None if root is None else int(root[1]), launched=launched)
    if chosen is None or (root is not None and chosen.rank != int(root[1]) and _is_consequence(chosen, int(root[2]))):
        return _killed(root) or (None if not serious else _as_exception(serious[-1], serious))
    return _as_exception(chosen, raised)


def find_workers_signal(text: str) -> int | None:
    """The signal of which torch says that it has ended a loader worker; ``None``: it says nothing of one."""
    words = _WORKERS_SIGNAL.search(text)
    return None if words is None else next((n for n in signal.Signals if signal.strsignal(n) == words[1]), None)


def _is_consequence(block: _Block, code: int) -> bool:
    """Whether a traceback of another rank than the first that ended, with this code, is of its end.

    A rank that a signal or ``sys.exit(3)`` has ended prints none.
    """
    return code < 0 or (block.rank is not None and _CONSEQUENCE.search(block.text) is not None)


def shorten_path(path: str, folder: str) -> str:
    """A path without the folder that it is in."""
    return os.path.relpath(path, folder) if path.startswith(folder.rstrip("/") + "/") else path


def last_words(output: str) -> str:
    """The last line that says something, for output without an exception; empty: there is none."""
    lines = (" ".join(line.split()) for line in reversed(_ANSI.sub("", output).splitlines()))
    return next((line[:_MAX_LENGTH] for line in lines if any(sign.isalpha() for sign in line)), "")


def _split_rank(line: str) -> tuple[int | None, str]:
    rank = None
    while prefix := _RANK.match(line):
        rank, line = int(prefix[1]), line[prefix.end() :]
    return rank, line


def _read_blocks(rank: int | None, lines: Iterable[tuple[int, str]]) -> list[_Block]:
    """The tracebacks of one process, or of several whose lines have no prefix."""
    blocks: list[_Block] = []
    block: _Block | None = None
    previous, syntax = "", None
    for order, line in lines:
        drawn = "Exception Group Traceback" in line or (block is not None and bool(_DRAWN.match(line)))
        text = _DRAWN.sub("", line) if drawn else line
        if _HEADER in text:
            block = _Block(rank, order, harmless=previous.startswith(_HARMLESS))
            blocks.append(block)
        elif frame := _FRAME.match(text) or _RICH_FRAME.match(text):
            if block is None or block.text:
                syntax = (frame[1], int(frame[2]))
            else:
                block.frames.append((frame[1], int(frame[2])))
        elif block is not None and not block.text and _is_exception(text):
            block.text = text.strip()
        elif block is not None and block.text.endswith(":") and text.strip():
            block.text = f"{block.text} {text.strip()}"  # the message begins on the next line
        elif block is not None and drawn and _is_group(block) and _is_exception(text):
            block.text = f"{block.text}: {text.strip()}"  # the first of a group
        elif syntax is not None and text.startswith(_SYNTAX):
            blocks.append(_Block(rank, order, frames=[syntax], text=text.strip()))
            syntax = None
        previous = text.strip() or previous
    return [block for block in blocks if block.text]


def _is_exception(line: str) -> bool:
    """Whether a line is that of an exception: it begins with the name of a class, and not with a log's level."""
    match = _EXCEPTION.match(line)
    if match is None:
        return False
    name = match[1].rpartition(".")[2].lstrip("_")
    return "." in match[1] or (name[:1].isupper() and not name.isupper())


def _is_group(block: _Block) -> bool:
    return block.text.endswith("sub-exceptions)") or block.text.endswith("sub-exception)")


def _choose(blocks: list[_Block], root: int | None, *, launched: bool) -> _Block | None:
    """Of the tracebacks that which has ended the script."""
    if not blocks:
        return None
    of_root = [block for block in blocks if block.rank == root and root is not None]
    if of_root:
        return of_root[-1]
    if not launched and len({block.rank for block in blocks}) == 1:
        return blocks[-1]
    causes = [block for block in blocks if not _CONSEQUENCE.search(block.text)] or blocks
    first = causes[0].rank
    if first is None:  # the ranks say nothing of who they are
        return causes[-1]
    return [block for block in causes if block.rank == first][-1]


def _killed(root: re.Match[str] | None) -> ScriptException | None:
    """What torchrun has seen of a rank that has printed nothing."""
    if root is None:
        return None
    code = int(root[2])
    if code >= 0:
        return ScriptException(text=f"exit code {code}", rank=int(root[1]))
    return ScriptException(text=f"killed by {name_signal(-code)}", rank=int(root[1]), signal=-code)


def name_signal(number: int) -> str:
    """``SIGKILL``; of a number without a name ``signal 99``."""
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"


def _as_exception(block: _Block, blocks: list[_Block]) -> ScriptException:
    before = tuple(other.text for other in blocks if other.rank == block.rank and other.order < block.order)
    place = next(((file, line) for file, line in reversed(block.frames) if _is_users(file)), (None, None))
    if place == (None, None):  # a worker's own exception, say, of which the traceback has only libraries
        earlier = (other for other in reversed(blocks) if other.rank == block.rank and other.order < block.order)
        frames = (frame for other in earlier for frame in reversed(other.frames))
        place = next(((file, line) for file, line in frames if _is_users(file)), (None, None))
    text = " ".join(block.text.split())
    return ScriptException(text=text[:_MAX_LENGTH], file=place[0], line=place[1], rank=block.rank, before=before)


def _is_users(file: str) -> bool:
    return not (file.startswith(("<", _OURS)) or any(part in file for part in _LIBRARIES))
