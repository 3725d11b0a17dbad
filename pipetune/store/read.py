"""Reading a run folder, in whatever state an earlier process left it: what is damaged is reported, never guessed.

A line that is torn, not JSON or not an outcome is left out; unknown fields, which a newer version may have written, are
ignored. Each such thing becomes a sentence in ``problems``, and only a folder that is not a run folder is an error.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pipetune.errors import UsageError
from pipetune.records.sweep import SCHEMA, Outcome, from_dict, to_dict
from pipetune.store.files import OUTCOMES_FILE, RUN_FILE, RUNS_FOLDER, TIMELINES_FOLDER, is_plain_name, os_errors_as

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """A run folder as it was found."""

    run: dict[str, Any]
    """Contents of ``run.json``; empty when it could not be read."""
    outcomes: tuple[Outcome, ...]
    problems: tuple[str, ...]
    """One sentence each: what was damaged, missing or unknown and therefore left out."""


def load_run(path: Path) -> StoredRun:
    """Read a run folder, in whatever state an earlier process left it; needs no lock.

    Raises:
        UsageError: it is not a run folder.
        PipetuneError: a file of it cannot be read.
    """
    require_run(path)
    problems: list[str] = []
    unknown: set[str] = set()
    outcomes = []
    run = _load_object(path / RUN_FILE, problems)
    for line, data in _load_lines(path / OUTCOMES_FILE, problems):
        try:
            outcome = from_dict(Outcome, data)
            if (outcome.measurement is None) == (outcome.failure is None):
                raise TypeError("it needs a measurement or a failure, and not both")
        except TypeError as error:
            problems.append(f"{OUTCOMES_FILE} line {line} was left out: {error}")
            continue
        outcomes.append(outcome)
        unknown |= _unknown(data, to_dict(outcome))
    if unknown:
        problems.append(f"{OUTCOMES_FILE} has fields that this version ignores: {', '.join(sorted(unknown))}")
    return StoredRun(run=run, outcomes=tuple(outcomes), problems=tuple(problems))


def timeline_name(outcome: Outcome) -> str:
    """Under which name the timeline of an outcome lies: its candidate's key or ``ceiling``, the block in which it was
    compared closely, and the attempt from 2 on."""
    name = "ceiling" if outcome.role == "ceiling" else outcome.candidate.key
    name = f"{name}-block{outcome.block}" if outcome.block else name
    return name if outcome.attempt <= 1 else f"{name}-again{outcome.attempt}"


def timeline_names(path: Path) -> tuple[str, ...]:
    """The timelines that a run folder has, in the order of their names."""
    with (
        os_errors_as("list", path / TIMELINES_FOLDER, passed=FileNotFoundError),
        contextlib.suppress(FileNotFoundError),
    ):
        names = [found.stem for found in (path / TIMELINES_FOLDER).glob("*.jsonl")]
        # Some systems add a file of their own to each file, with names that a timeline never has.
        return tuple(sorted(filter(is_plain_name, names), key=_in_order))
    return ()


def _in_order(name: str) -> list[tuple[bool, int, str]]:
    """rank2 before rank10."""
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in re.split(r"(\d+)", name)]


def load_object(source: Path) -> tuple[dict[str, Any], tuple[str, ...]]:
    """A JSON file's object, empty when it is missing or damaged, and what is wrong with it.

    Raises:
        PipetuneError: the file cannot be read.
    """
    problems: list[str] = []
    return _load_object(source, problems), tuple(problems)


class Line(NamedTuple):
    """One line of a file, or one part of it."""

    number: int | None
    """From 1; ``None``: of a part that has none."""
    content: Any


def load_lines(source: Path) -> tuple[list[Line], tuple[str, ...]]:
    """The objects of a file of JSON lines, and what was left out of it. A file that is missing has none.

    Raises:
        PipetuneError: the file cannot be read.
    """
    problems: list[str] = []
    if not source.exists():
        return [], ()
    return list(_load_lines(source, problems)), tuple(problems)


def records_of(lines: Iterable[Line], kind: type[R], name: str) -> tuple[list[R], list[str]]:
    """The lines as records, and what was left out because it is damaged.

    Args:
        lines: as they were read.
        kind: the record that each holds.
        name: of the file, for the problems.
    """
    records, problems = [], []
    for line in lines:
        try:
            records.append(from_dict(kind, line.content))
        except TypeError as error:
            place = name if line.number is None else f"{name} line {line.number}"
            problems.append(f"{place} was left out: {error}")
    return records, problems


def require_run(path: Path) -> None:
    """Check that a sweep wrote this folder.

    Raises:
        UsageError: it did not; a run below it is suggested.
    """
    if (path / RUN_FILE).is_file() or (path / OUTCOMES_FILE).exists():
        return
    inside = sorted(found.parent for found in path.glob(f"*/{RUN_FILE}")) if path.is_dir() else []
    raise UsageError(
        f"{path} is not a run folder: it has no {RUN_FILE}" if path.exists() else f"there is no folder {path}",
        hint=f"did you mean {inside[-1]}?" if inside else f"name one that a sweep wrote, by default in {RUNS_FOLDER}/",
    )


def _load_object(source: Path, problems: list[str]) -> dict[str, Any]:
    try:
        return _decode(_read(source), source.name, problems)
    except FileNotFoundError:
        problems.append(f"{source.name} is missing")
    except ValueError as error:
        problems.append(f"{source.name} was left out: {error}")
    return {}


def _load_lines(source: Path, problems: list[str]) -> Iterator[Line]:
    """The whole lines with an object each; the others are reported in ``problems``."""
    try:
        content = _read(source)
    except FileNotFoundError:
        problems.append(f"{source.name} is missing: nothing was measured to its end")
        return
    if not content:
        problems.append(f"{source.name} is empty: nothing was measured to its end")
    *lines, rest = content.split(b"\n")
    for number, line in enumerate(lines, start=1):
        try:
            yield Line(number, _decode(line, source.name, problems))
        except ValueError as error:
            problems.append(f"{source.name} line {number} was left out: {error}")
    if rest:
        problems.append(f"{source.name} line {len(lines) + 1} was left out: it was not written to its end")


def _decode(text: bytes, name: str, problems: list[str]) -> dict[str, Any]:
    if not text.strip():
        raise ValueError("it is empty")
    try:
        content = json.loads(text.decode("utf-8"), parse_constant=_refuse)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(content, dict):
        raise ValueError(f"an object was expected, not {str(content)[:40]!r}")
    schema = content.get("schema")
    if isinstance(schema, int) and schema > SCHEMA:
        problem = f"{name} was written in schema {schema}, this version reads {SCHEMA}: upgrade pipetune"
        if problem not in problems:
            problems.append(problem)
    return content


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _unknown(data: Mapping[str, Any], kept: Mapping[str, Any], prefix: str = "") -> set[str]:
    """Fields of ``data`` that reading it as a record dropped, as dotted paths."""
    found = set()
    for key, value in data.items():
        if key not in kept and (prefix or key != "schema"):
            found.add(f"{prefix}{key}")
        elif isinstance(value, dict) and isinstance(kept.get(key), dict):
            found |= _unknown(value, kept[key], f"{prefix}{key}.")
    return found


def _read(source: Path) -> bytes:
    with os_errors_as("read", source, passed=FileNotFoundError):
        return source.read_bytes()
