"""Which sweeps of this user's scripts are at work, or were killed, wherever their run folders are.

Two of them must not keep and put back the same files, and what a killed one has left is put back by the next sweep over
the same folders. Each has a file in the user's data folder::

    {"host": "node1", "run": "/scratch/runs/one", "places": ["/home/u/job", "/data/out"]}

Without such a folder (no ``HOME``) only the runs in the current folder are known.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipetune.errors import UsageError
from pipetune.machine.user_folders import data_folder
from pipetune.protection.choose import is_unsettled, puts_back_later
from pipetune.store.files import LOCK_FILE
from pipetune.store.run_lock import holder_of

_FOLDER = "open-sweeps"


def find_notes_folder() -> Path | None:
    """The folder of the notes, whether it exists or not; ``None``: this user has no data folder."""
    folder = data_folder()
    return None if folder is None else folder / _FOLDER


def note_sweep(run: Path, places: Sequence[str]) -> None:
    """Note a sweep whose protection has begun.

    Args:
        run: its run folder.
        places: folders in which its script is likely to write; absolute, without links.
    """
    target = _place_note(run)
    if target is None:
        return
    content = {"host": platform.node(), "run": str(run.resolve()), "places": list(places)}
    with contextlib.suppress(OSError):  # a full or read-only disk
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        new = target.with_suffix(f".{os.getpid()}.new")
        new.write_text(json.dumps(content), encoding="utf-8")
        new.rename(target)


def forget_sweep(run: Path) -> None:
    """Remove the note of a sweep, unless it has left something to put back."""
    target = _place_note(run)
    if target is not None and not is_unsettled(run):
        with contextlib.suppress(OSError):
            target.unlink()


def list_open_sweeps(places: Sequence[str]) -> list[Path]:
    """Run folders of the sweeps that are noted for these folders, for folders in them or around them; oldest first.

    Args:
        places: see :func:`note_sweep`.
    """
    folder = find_notes_folder()
    if folder is None:
        return []
    runs: list[tuple[int, Path]] = []
    for note in sorted(folder.glob("*.json")):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            content: dict[str, Any] = json.loads(note.read_bytes())
            if content["host"] != platform.node():
                continue
            run = Path(content["run"])
            if not run.is_dir() or (not is_unsettled(run) and holder_of(run / LOCK_FILE) is None):
                note.unlink()  # it has ended in another way, or was removed
            elif any(_overlap(place, other) for place in places for other in content["places"]):
                runs.append((note.stat().st_mtime_ns, run))
    return [run for _, run in sorted(runs)]


def refuse_other_sweeps(runs: Sequence[Path]) -> None:
    """Refuse to begin beside a sweep that changes files and puts them back at its end.

    Args:
        runs: run folders over the same folders.

    Raises:
        UsageError: one of them still runs.
    """
    for run in runs:
        if is_unsettled(run) and puts_back_later(run) and holder_of(run / LOCK_FILE) is not None:
            raise UsageError(
                f"the sweep in {run} still runs, and puts files of this folder back at its end",
                hint="wait for it to end",
            )


def _place_note(run: Path) -> Path | None:
    folder = find_notes_folder()
    name = hashlib.sha256(os.fsencode(run.resolve())).hexdigest()[:24]
    return None if folder is None else folder / f"{name}.json"


def _overlap(one: str, other: str) -> bool:
    one, other = f"{one.rstrip('/')}/", f"{other.rstrip('/')}/"
    return one.startswith(other) or other.startswith(one)
