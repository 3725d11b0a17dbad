"""Concludes what a script has written into the layers of an overlay: new files get to their place, all are listed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pipetune.protection.contract import Settled
from pipetune.protection.place_new_files import keep_contested, place_new_files
from pipetune.protection.state import KEPT, ProtectionFolder, remove_tree
from pipetune.protection.upper import UpperContents, read_upper
from pipetune.records.written import OVERLAY as MECHANISM
from pipetune.records.written import WrittenFiles


def settle_overlay(folder: ProtectionFolder, state: Mapping[str, Any]) -> Settled:
    """Move new files from the layers to their place, and list what the script has written."""
    contents = UpperContents()
    base = folder.path / state["base"]  # an absolute one stays what it is
    for name, path in state["layers"].items():
        upper = base / name / "upper"
        if upper.is_dir():
            read_upper(str(upper), path, state["attributes"], int(state["began_ns"]), contents)
    _leave_out_empty_temporary(contents)
    folder.remember_written(
        WrittenFiles(
            mechanism=MECHANISM,
            created=tuple(sorted(path for path, stored in contents.created.items() if not _is_folder(stored))),
            changed=tuple(sorted(path for path in contents.changed if not _is_folder(path))),
            removed=tuple(sorted(path for path in contents.removed - contents.changed if not _is_folder(path))),
            notes=tuple(
                f"the script renamed the folder {former} to {new}; it has its former name again"
                for new, former in sorted(contents.renamed_folders.items())
            ),
        )
    )
    new = place_new_files(contents.created, folder.run / KEPT)
    contested = keep_contested(contents.contested, folder.run / KEPT)
    failures = (*new.failures, *contested.failures)
    written = folder.remember_written(WrittenFiles(mechanism=MECHANISM, notes=(*new.notes, *contested.notes)))
    if failures:  # not remembered: the next command tries again
        written = replace(written, notes=(*failures, *written.notes))
    else:
        remove_tree(base)
    return Settled(written, not failures)


def _is_folder(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


def _leave_out_empty_temporary(contents: UpperContents) -> None:
    """Drop new folders in the temporary one that hold nothing: those of processes that had no time to remove them."""
    temporary = tempfile.gettempdir()
    filled = {os.path.dirname(path) for path in contents.created}
    for path, stored in list(contents.created.items()):
        if os.path.dirname(path) == temporary and path not in filled and _is_folder(stored):
            del contents.created[path]
