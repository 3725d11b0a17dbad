"""The run folder: every outcome is on the disk before the next candidate starts, whatever happens then.

::

    pipetune-runs/20260131-184500-imagenet/
        run.json             what was asked, and of which machine; always a whole file
        index.json           the images, as every child reads them
        outcomes.jsonl       one line per finished candidate, in the order of time
        timelines/KEY.jsonl  readings and steps of one candidate, each line with its ``kind``
        result.json          the result, as --json prints it
        lock                 held by the process that writes here, whose number it contains: ``pipetune PID``

The folder and its files are for the user who made them; a folder that was there before (``--out``) keeps its rights.
Every object that is written starts with ``"schema"``. The folder is readable at every moment: see
:mod:`pipetune.store.files` for how lines are kept whole and :mod:`pipetune.store.read` for reading.

Why files and no database: outcomes are few (one in ten seconds), people look at them with ``tail`` and ``jq``, and an
append to a file survives on network file systems on which SQLite's locking does not.
"""

from __future__ import annotations

import contextlib
import os
import re
import unicodedata
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Self

from pipetune.errors import UsageError
from pipetune.records.observation import Reading
from pipetune.records.sweep import Outcome, StepTime, to_dict
from pipetune.store import run_lock
from pipetune.store.files import (
    LOCK_FILE,
    OUTCOMES_FILE,
    OWN_FILE,
    OWN_FOLDER,
    RESULT_FILE,
    RUNS_FOLDER,
    TIMELINES_FOLDER,
    append_lines,
    encode,
    os_errors_as,
    plain_name,
    replace_file,
    sync_path,
)
from pipetune.store.read import StoredRun, load_run, require_run

__all__ = ["RunFolder", "StoredRun", "check_out", "create_run", "load_run", "open_run", "slug"]

_SLUG_LENGTH = 40
_WAIT = "wait for it to end, or name another folder with --out DIR"


class RunFolder:
    """A run folder that this process writes to and holds the lock of, until :meth:`close` or the end of a ``with``.

    Every method that writes raises PipetuneError when the disk refuses; what was written before stays readable and the
    same method may be called again.
    """

    def __init__(self, path: Path, hint: str = _WAIT, *, has_made_parent: bool = False) -> None:
        self.path, self._has_made_parent = path, has_made_parent
        self._lock_fd: int | None = run_lock.acquire(path, hint)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the lock back. The file stays: removing it would race with a process that has just opened it."""
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None

    def remove_unless_used(self) -> None:
        """Remove a new folder in which there is nothing to read, and ``pipetune-runs`` where it was made for it."""
        if set(os.listdir(self.path)) <= {LOCK_FILE}:
            with contextlib.suppress(OSError):
                (self.path / LOCK_FILE).unlink(missing_ok=True)
                self.path.rmdir()
                if self._has_made_parent:
                    self.path.parent.rmdir()  # refused where another run has begun meanwhile

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        """Replace the file ``name`` as a whole: a reader sees the old contents or the new, never a part.

        Raises:
            ValueError: ``name`` is not safe as a file name.
        """
        replace_file(self.path / plain_name(name), [encode(name, content, indent=2)], mode=OWN_FILE)

    def remove_result(self) -> None:
        """Remove the result of a sweep that goes on: it is another one's until the new one is written."""
        with os_errors_as("write", self.path / RESULT_FILE):
            (self.path / RESULT_FILE).unlink(missing_ok=True)

    def append_outcome(self, outcome: Outcome) -> None:
        """Add one line to ``outcomes.jsonl``; it is on the disk when this returns."""
        data = encode(f"outcome of {outcome.candidate.key}", to_dict(outcome))
        append_lines(self.path / OUTCOMES_FILE, data, sync=True)

    def append_timeline(
        self, key: str, kind: Literal["reading", "step"], records: Iterable[Reading | StepTime]
    ) -> None:
        """Add one line per record to the timeline ``key``, which :meth:`close_timeline` brings to the disk.

        Raises:
            ValueError: ``key`` is not safe as a file name.
        """
        target = self._timeline(key)
        lines = [encode(f"timeline {key}", {"kind": kind, **to_dict(record)}) for record in records]
        with os_errors_as("create", target.parent):
            target.parent.mkdir(mode=OWN_FOLDER, exist_ok=True)
        append_lines(target, b"".join(lines), sync=False)

    def remove_timeline(self, key: str) -> None:
        """Remove the timeline of an earlier attempt with the same name."""
        target = self._timeline(key)
        with os_errors_as("remove", target):
            target.unlink(missing_ok=True)

    def close_timeline(self, key: str) -> None:
        """Bring the timeline to the disk: once per candidate, because waiting for it would disturb a measurement."""
        target = self._timeline(key)
        with os_errors_as("write", target), contextlib.suppress(FileNotFoundError):
            sync_path(target)
            sync_path(target.parent)

    def _timeline(self, key: str) -> Path:
        return self.path / TIMELINES_FOLDER / f"{plain_name(key)}.jsonl"


def create_run(out: Path | None, *, dataset_name: str, now: datetime) -> RunFolder:
    """Make a new run folder and lock it: ``out``, or ``pipetune-runs/YYYYMMDD-HHMMSS-<data set>``.

    Raises:
        UsageError: ``out`` is not a folder, is not empty, or another process is working in it.
        PipetuneError: the disk refuses.
    """
    if out is not None:
        return _take(out)
    stem = f"{now:%Y%m%d-%H%M%S}-{slug(dataset_name)}"
    number, is_first = 1, not RUNS_FOLDER.exists()
    while True:
        folder = RUNS_FOLDER / (stem if number == 1 else f"{stem}-{number}")
        with os_errors_as("create", folder):
            try:
                folder.mkdir(mode=OWN_FOLDER, parents=True)
                sync_path(RUNS_FOLDER)
            except FileExistsError:
                if RUNS_FOLDER.is_dir():  # and no dangling link, below which nothing can ever be made
                    number += 1
                    continue
                raise
        return RunFolder(folder, has_made_parent=is_first)


def check_out(out: Path | None) -> None:
    """Refuse a place where no run folder can be made, before anything takes long for it. Nothing is changed.

    Raises:
        UsageError: it is not a folder, is not empty, or another process is working in it.
        PipetuneError: it cannot be read.
    """
    if out is None:
        return
    with os_errors_as("create", out):
        if not out.exists():
            return
        if not out.is_dir():
            raise UsageError(f"--out {out} is not a folder", hint="name a new or empty folder")
        entries = set(os.listdir(out))
    with os_errors_as("read", out / LOCK_FILE):
        # Asked first: "in use by process 12" says more than "not empty".
        holder = run_lock.holder_of(out / LOCK_FILE) if LOCK_FILE in entries else None
        if holder is not None:
            raise run_lock.in_use(out, holder, _WAIT)
        # A folder with only the lock was abandoned before anything was measured.
        if not entries or (entries == {LOCK_FILE} and run_lock.is_own(out / LOCK_FILE)):
            return
    raise UsageError(f"--out {out} is not empty", hint="name a new folder, or omit --out")


def open_run(path: Path) -> RunFolder:
    """Lock an existing run folder to resume its sweep.

    Raises:
        UsageError: it is not a run folder, or another process is working in it.
    """
    require_run(path)
    return RunFolder(path, hint="wait for it to end")


def slug(name: str) -> str:
    """The end of a data set's name in ASCII letters, digits and hyphens, at most 40 characters; never empty."""
    # Two folders deep: "imagenet-train" distinguishes runs where "train" would not.
    end = "-".join([part for part in name.split("/") if part.strip(". ")][-2:])
    plain = unicodedata.normalize("NFKD", end).encode("ascii", "ignore").decode("ascii").lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:_SLUG_LENGTH].rstrip("-") or "dataset"


def _take(out: Path) -> RunFolder:
    """The folder that the user named, in which nothing is changed before it is known to be new or pipetune's."""
    check_out(out)
    with os_errors_as("create", out):
        out.mkdir(mode=OWN_FOLDER, parents=True, exist_ok=True)
    return RunFolder(out)
