"""Reading a run folder, in whatever state an earlier process left it: what is damaged is reported, never guessed.

A line that is torn, not JSON or not an outcome is left out, and so is a value of another type than its field's.
Unknown fields, which a newer version may have written, are ignored. Each such thing becomes a sentence in ``problems``,
and only a folder that is not a run folder is an error.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipetune.errors import PipetuneError, UsageError
from pipetune.records.stored import StoredInfo, StoredResult
from pipetune.records.sweep import Outcome, to_dict
from pipetune.store.files import (
    OUTCOMES_FILE,
    RESULT_FILE,
    RUN_FILE,
    RUNS_FOLDER,
    TIMELINES_FOLDER,
    WINDOWS_FILE,
    is_plain_name,
    os_errors_as,
)
from pipetune.store.fitting import checked, fitting
from pipetune.store.json_lines import Problems, iterate_lines, read_object

#: Largest ``outcomes.jsonl``: 20,000 measurements.
MOST_OUTCOMES_BYTES = 64 << 20


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
    unknown: set[str] = set()
    outcomes = []
    run, found = load_info(path)
    problems = Problems(found)
    for line, data in iterate_lines(path / OUTCOMES_FILE, problems, MOST_OUTCOMES_BYTES):
        try:
            outcome = checked(Outcome, data)
            if not is_plain_name(timeline_name(outcome)):
                raise TypeError("its candidate's name is not safe as a file name")
        except TypeError as error:
            problems.append(f"{OUTCOMES_FILE} line {line} was left out: {error}")
            continue
        outcomes.append(outcome)
        unknown |= _unknown(data, to_dict(outcome))
    if unknown:
        problems.append(f"{OUTCOMES_FILE} has fields that this version ignores: {', '.join(sorted(unknown))}")
    return StoredRun(run=run, outcomes=tuple(outcomes), problems=problems.sentences())


def load_info(path: Path) -> tuple[dict[str, Any], list[str]]:
    """What a run folder's ``run.json`` holds, of the types of :class:`StoredInfo`, and what is wrong with it.

    Raises:
        PipetuneError: the file cannot be read.
    """
    return _load_fitting(path / RUN_FILE, StoredInfo)


def load_result(path: Path) -> tuple[dict[str, Any], list[str]]:
    """The same of ``result.json``, of the types of :class:`StoredResult`. A run that was stopped has none."""
    return _load_fitting(path / RESULT_FILE, StoredResult)


def _load_fitting(source: Path, shape: Any) -> tuple[dict[str, Any], list[str]]:
    problems: list[str] = []
    content = read_object(source, problems)
    kept, misfits = fitting(shape, content, source.name)
    return kept, [*problems, *misfits]


def timeline_name(outcome: Outcome) -> str:
    """Under which name the timeline of an outcome lies: its candidate's key, ``ceiling`` or ``ceiling-b256`` (with
    another batch size), the block in which it was compared closely, and the attempt from 2 on."""
    ceiling = f"ceiling-b{outcome.candidate.batch_size}" if outcome.other_batch else "ceiling"
    name = ceiling if outcome.role == "ceiling" else outcome.candidate.key
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


def require_run(path: Path) -> None:
    """Check that pipetune wrote this folder: of a watch on a full disk, ``run.json`` may be missing.

    Raises:
        UsageError: it did not; a run below it is suggested.
    """
    try:
        os.stat(path / RUN_FILE)
    except PermissionError as error:  # pathlib raises it, or says that there is nothing, depending on Python's version
        raise PipetuneError(
            f"{path} may not be read by you", hint=f"its owner can share it: chmod -R go+rX {shlex.quote(str(path))}"
        ) from error
    except OSError:
        pass  # there is none
    if (path / RUN_FILE).is_file() or any((path / name).exists() for name in (OUTCOMES_FILE, WINDOWS_FILE)):
        return
    inside = sorted(found.parent for found in path.glob(f"*/{RUN_FILE}")) if path.is_dir() else []
    raise UsageError(
        f"{path} is not a run folder: it has no {RUN_FILE}" if path.exists() else f"there is no folder {path}",
        hint=f"did you mean {inside[-1]}?" if inside else f"name one that a sweep wrote, by default in {RUNS_FOLDER}/",
    )


def _unknown(data: Mapping[str, Any], kept: Mapping[str, Any], prefix: str = "") -> set[str]:
    """Fields of ``data`` that reading it as a record dropped, as dotted paths."""
    found = set()
    for key, value in data.items():
        if key not in kept and (prefix or key != "schema"):
            found.add(f"{prefix}{key}")
        elif isinstance(value, dict) and isinstance(kept.get(key), dict):
            found |= _unknown(value, kept[key], f"{prefix}{key}.")
    return found
