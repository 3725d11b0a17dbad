"""Files that a killed sweep of a script has left: put back, or moved to their place, when its run folder is opened."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path

from pipetune.errors import PipetuneWarning
from pipetune.protection.choose import is_unsettled, settle_protection
from pipetune.protection.state import FOLDER
from pipetune.protection.words import describe_written
from pipetune.records.sweep import to_dict
from pipetune.runs.open_sweeps import forget_sweep, list_open_sweeps, refuse_other_sweeps
from pipetune.store.files import LOCK_FILE, OWN_FILE, RUNS_FOLDER, WRITTEN_FILE, encode, replace_file
from pipetune.store.ownership import why_foreign
from pipetune.store.run_lock import holder_of


class RecoveredFilesWarning(PipetuneWarning):
    """What was put back."""


def recover_all(out: Path | None, places: Sequence[str] = ()) -> None:
    """Put back what sweeps that were killed have left in the run folders of the current folder, before a new one.

    Args:
        out: another folder that may be one.
        places: folders in which the new one's script is likely to write: killed sweeps over them count, too, wherever
            their run folders are.

    Raises:
        UsageError: a sweep runs here whose script has changed files: their first versions are not in their place.
        PipetuneError: see :func:`recover_files`.
    """
    runs = sorted(RUNS_FOLDER.iterdir()) if RUNS_FOLDER.is_dir() else []
    elsewhere = list_open_sweeps(places)
    refuse_other_sweeps([*runs, *elsewhere])
    for run in [*runs, *([] if out is None else [out]), *elsewhere]:
        recover_files(run)


def recover_files(run: Path) -> None:
    """Put back what a sweep that was killed has left in its run folder, and say so as a warning.

    A folder in which a sweep still runs, or that others could have written to, is left alone.

    Raises:
        PipetuneError: processes of the script still run, or the disk refuses.
    """
    if not is_unsettled(run) or holder_of(run / LOCK_FILE) is not None:
        return
    foreign = why_foreign([run, run / FOLDER])
    if foreign is not None:
        warnings.warn(f"{run} may hold files to put back, which was not done: {foreign}", PipetuneWarning, stacklevel=2)
        return
    written = settle_protection(run)
    forget_sweep(run)
    if written:
        target = run / WRITTEN_FILE
        replace_file(target, [encode(WRITTEN_FILE, to_dict(written), indent=2)], mode=OWN_FILE)
        text = "; ".join(describe_written(written, os.getcwd(), where=target))
        warnings.warn(f"the sweep in {run} was killed: {text}", RecoveredFilesWarning, stacklevel=2)
