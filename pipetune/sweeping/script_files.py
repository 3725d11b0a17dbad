"""The user's files while his script is tuned: kept as they are, and what was written is listed on every way out."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from pipetune.errors import PipetuneError
from pipetune.processes.signals import defer_signals
from pipetune.protection.choose import choose_protection
from pipetune.protection.contract import Protection, Request
from pipetune.protection.guard import named_folders
from pipetune.protection.words import describe_written
from pipetune.records.sweep import to_dict
from pipetune.records.written import UNPROTECTED, WrittenFiles
from pipetune.runs.open_sweeps import find_notes_folder, forget_sweep, list_open_sweeps, note_sweep, refuse_other_sweeps
from pipetune.store.files import WRITTEN_FILE
from pipetune.store.folder import RunFolder
from pipetune.sweeping.changed_files import MOST, list_changes, places_of, snapshot


class ScriptFiles:
    """A context manager around all starts of a script.

    An exception that leaves the block gets what was written as notes (PEP 678).

    Args:
        folder: the run folder.
        command: as the user wrote it.
        allow_writes: the files are not protected; what was written is found out by times and sizes.

    Raises:
        UsageError: this system has no way to protect files, or another sweep puts files in the same folders back.
        PipetuneError: the disk refuses.
    """

    def __init__(self, folder: RunFolder, command: Sequence[str], *, allow_writes: bool) -> None:
        self._folder, self._cwd = folder, Path.cwd()
        self._written: WrittenFiles | None = None
        self.protection: Protection | None = None
        self._places = places_of(command, self._cwd)
        if allow_writes:
            self._before = snapshot(self._places, [folder.path])
        else:
            notes = find_notes_folder()
            own_places = () if notes is None else (Path(os.path.realpath(notes)),)
            self.protection = self._begin_protection(
                Request(command=tuple(command), cwd=self._cwd, open_places=own_places)
            )

    def _begin_protection(self, request: Request) -> Protection:
        run, places = self._folder.path, named_folders(request)
        protection = choose_protection(run, request)
        try:
            note_sweep(run, places)
            # Another one may have begun at the same time: the later one gives way.
            others = list_open_sweeps(places)
            refuse_other_sweeps(others[: others.index(run.resolve())] if run.resolve() in others else others)
        except BaseException:
            protection.close()
            forget_sweep(run)
            raise
        return protection

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        written = self.settle()
        if error is not None:
            for line in describe_written(written, str(self._cwd), where=self._folder.path / WRITTEN_FILE):
                error.add_note(line)

    def settle(self) -> WrittenFiles:
        """Put back and move, once every start has ended; returns what was written. May be called again."""
        with defer_signals():  # or half of the new files would be elsewhere
            if self._written is None:
                self._written = self._settle()
                if self._written:
                    with contextlib.suppress(PipetuneError):  # it is said on the screen, too
                        self._folder.write_json(WRITTEN_FILE, to_dict(self._written))
        return self._written

    def _settle(self) -> WrittenFiles:
        if self.protection is None:
            after = snapshot(self._places, [self._folder.path])
            if self._before is None or after is None:
                note = (
                    f"what files the script has changed is not known: there are more than {MOST:,} in the working "
                    "folder and the folders that the command names"
                )
                return WrittenFiles(mechanism=UNPROTECTED, notes=(note,))
            return list_changes(self._before, after)
        try:
            return self.protection.collect()
        except OSError as error:
            note = (
                f"what the script wrote could not be put back or listed ({error.strerror or error}); the next command "
                f"that opens {self._folder.path} tries again"
            )
            return WrittenFiles(mechanism=self.protection.mechanism, notes=(note,))
        finally:
            self.protection.close()
            forget_sweep(self._folder.path)
