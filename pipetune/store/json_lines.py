"""Files of JSON objects, one in a file or one per line: in whatever state they are, and what is wrong with them."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pipetune.records.sweep import SCHEMA
from pipetune.store.files import os_errors_as
from pipetune.store.fitting import checked
from pipetune.store.regular import MOST_LINE_BYTES, MOST_LINES_BYTES, TooLargeError, read_lines, read_whole

R = TypeVar("R")

#: Damaged lines of a file that are reported one by one.
_MOST_PROBLEMS = 20


class Line(NamedTuple):
    """One line of a file, or one part of it."""

    number: int | None
    """From 1; ``None``: of a part that has none."""
    content: Any


class Problems:
    """Sentences, of which the first ones are kept and the others counted: a file may have a million bad lines."""

    def __init__(self, first: Iterable[str] = ()) -> None:
        self._kept = list(first)
        self._more = 0

    def append(self, sentence: str) -> None:
        """Add one, unless it is there."""
        if sentence in self._kept:
            return
        if len(self._kept) < _MOST_PROBLEMS:
            self._kept.append(sentence)
        else:
            self._more += 1

    def sentences(self) -> tuple[str, ...]:
        """What was added."""
        return (*self._kept, *([f"{self._more} more such lines were left out"] if self._more else []))


def read_object(source: Path, problems: list[str]) -> dict[str, Any]:
    """A file's object, empty where it is missing or damaged, which is added to ``problems``.

    Raises:
        PipetuneError: the file cannot be read.
    """
    try:
        with os_errors_as("read", source, passed=FileNotFoundError):
            content = read_whole(source)
        return _decode(content, source.name, problems)
    except FileNotFoundError:
        problems.append(f"{source.name} is missing")
    except ValueError as error:
        problems.append(f"{source.name} was left out: {error}")
    return {}


def load_lines(source: Path) -> tuple[list[Line], tuple[str, ...]]:
    """The objects of a file of JSON lines, and what was left out of it. A file that is missing has none.

    Raises:
        PipetuneError: the file cannot be read.
    """
    problems = Problems()
    try:
        os.stat(source)
    except FileNotFoundError:
        return [], ()
    except OSError:
        pass  # reading it says why
    return list(iterate_lines(source, problems)), problems.sentences()


def iterate_lines(source: Path, problems: Problems, most_bytes: int = MOST_LINES_BYTES) -> Iterator[Line]:
    """The whole lines with an object each; the others are added to ``problems``.

    Args:
        source: the file.
        problems: what is wrong with it.
        most_bytes: that are read of it.

    Raises:
        PipetuneError: the file cannot be read.
    """
    number = 0
    try:
        with os_errors_as("read", source, passed=FileNotFoundError):
            for number, line in enumerate(read_lines(source, most_bytes=most_bytes), start=1):
                if line is None:
                    problems.append(
                        f"{source.name} line {number} was left out: it is longer than {MOST_LINE_BYTES >> 20} MiB"
                    )
                elif not line.endswith(b"\n"):
                    problems.append(f"{source.name} line {number} was left out: it was not written to its end")
                else:
                    try:
                        yield Line(number, _decode(line, source.name, problems))
                    except ValueError as error:
                        problems.append(f"{source.name} line {number} was left out: {error}")
    except FileNotFoundError:
        problems.append(f"{source.name} is missing: nothing was measured to its end")
        return
    except TooLargeError as error:
        problems.append(f"{source.name}: {error}")
    if not number:
        problems.append(f"{source.name} is empty: nothing was measured to its end")


def records_of(lines: Iterable[Line], kind: type[R], name: str) -> tuple[list[R], list[str]]:
    """The lines as records, and what was left out because it is damaged.

    Args:
        lines: as they were read.
        kind: the record that each holds.
        name: of the file, for the problems.
    """
    records = []
    problems = Problems()
    for line in lines:
        try:
            records.append(checked(kind, line.content))
        except TypeError as error:
            place = name if line.number is None else f"{name} line {line.number}"
            problems.append(f"{place} was left out: {error}")
    return records, list(problems.sentences())


def _decode(text: bytes, name: str, problems: Problems | list[str]) -> dict[str, Any]:
    if not text.strip():
        raise ValueError("it is empty")
    try:
        content = json.loads(text.decode("utf-8"), parse_constant=_refuse, parse_float=_finite)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(content, dict):
        raise ValueError(f"an object was expected, not {str(content)[:40]!r}")
    schema = content.get("schema")
    if isinstance(schema, int) and schema > SCHEMA:
        problem = f"{name} was written in schema {schema}, this version reads {SCHEMA}: upgrade pipetune"
        problems.append(problem)
    return content


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{digits[:20]} is too large a number")
    return value
