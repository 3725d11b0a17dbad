"""What the journal of a script's files says afterwards: the files that it made, changed and removed."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from pipetune.protection.contract import Settled
from pipetune.protection.journal import count_damaged_lines, read_entries
from pipetune.protection.put_back import (
    first_entries,
    is_as_before,
    paths_changed_later,
    put_back,
    separate_names,
)
from pipetune.protection.room import measure_disk_use
from pipetune.protection.state import COPIES, JOURNAL, KEPT, ProtectionFolder, remove_tree
from pipetune.records.written import WrittenFiles

#: So long after a process of a killed sweep was last seen, it may have written (ns): clocks of file servers differ.
GRACE_NS = 60 * 10**9
#: More new files than that are not listed one by one.
MAX_LISTED = 100_000


def settle_kept(
    folder: ProtectionFolder,
    mechanism: str,
    notes: tuple[str, ...] = (),
    ended_ns: int | None = None,
    made: Sequence[str] = (),
) -> Settled:
    """List what the script has written, then put back what existed before.

    Args:
        notes: what is known besides.
        ended_ns: see :func:`pipetune.protection.put_back.put_back`.
        made: files that are known to be new, also where the journal has them as if they had existed: another program
            has made them, before Python kept them.
    """
    # Listed first: what is put back looks as if nothing had been written to it.
    kept = list_kept(folder.path, mechanism, ended_ns)
    kept = replace(
        kept,
        created=tuple(sorted({*kept.created, *made})),
        changed=tuple(sorted({*kept.changed}.difference(made))),
    )
    listed = folder.remember_written(kept)
    failures, more = put_back(folder.path, folder.run / KEPT, ended_ns)
    shared = separate_names(folder.path, listed.created) if not failures else {}
    damaged = count_damaged_lines(folder.path / JOURNAL)
    if damaged:
        lines = "1 line" if damaged == 1 else f"{damaged:,} lines"
        more += (f"{lines} of the journal cannot be read: files that were named there are as the script left them",)
    unlisted = WrittenFiles(mechanism=mechanism, notes=(*notes, *more))
    written = folder.remember_written(unlisted) if unlisted else listed
    if failures or shared:  # not remembered: the next command tries again
        written = replace(
            written,
            unrestored=tuple(sorted(failures)),
            notes=(*failures.values(), *shared.values(), *written.notes),
        )
    if not failures and not shared:  # first the journal: without it, nothing is put back any more
        (folder.path / JOURNAL).unlink(missing_ok=True)
        remove_tree(folder.path / COPIES)
    return Settled(written=written, is_complete=not failures and not shared)


def find_end_ns(folder: ProtectionFolder) -> int:
    """When the last process of a killed sweep had ended for certain (ns since 1970)."""
    return folder.last_ran_ns + GRACE_NS


def measure_written(folder: Path) -> int:
    """Bytes that a script's new files, and the first versions of others, take on the disks.

    Args:
        folder: has the journal and the copies.
    """
    created = [entry.path for entry in read_entries(folder / JOURNAL) if entry.kind == "created"]
    return measure_disk_use([str(folder / COPIES), *created])


def list_kept(folder: Path, mechanism: str, ended_ns: int | None = None) -> WrittenFiles:
    """The files that a script has written, before they are put back.

    Args:
        folder: has the journal and the copies.
        ended_ns: see :func:`pipetune.protection.put_back.put_back`.
    """
    entries = read_entries(folder / JOURNAL)
    existed = first_entries(entries)
    later = paths_changed_later(existed, folder / COPIES, ended_ns)
    changed, removed, made_in = [], [], []
    for entry in existed:
        if stat.S_ISDIR(entry.mode):
            if entry.kind == "removed":  # and it may be there again, with other files
                made_in.append(entry.path)
        elif not os.path.lexists(entry.path):
            removed.append(entry.path)
        elif entry.path not in later and not is_as_before(entry, folder / COPIES):
            changed.append(entry.path)
    made_in += [entry.path for entry in entries if entry.kind == "created"]
    earlier = {entry.path for entry in existed}
    created: set[str] = set()
    for place in made_in:
        if len(created) < MAX_LISTED:
            created.update(path for path in _files_at(place) if path not in earlier)
    return WrittenFiles(
        mechanism=mechanism,
        created=tuple(sorted(created)),
        changed=tuple(sorted(changed)),
        removed=tuple(sorted(removed)),
    )


def _files_at(path: str) -> Iterator[str]:
    """The file of a path; of a folder, all files in it."""
    if os.path.islink(path) or not os.path.isdir(path):
        if _is_file(path):
            yield path
        return
    for folder, names, files in os.walk(path):
        yield from (place for name in [*files, *names] if _is_file(place := os.path.join(folder, name)))


def _is_file(path: str) -> bool:
    """Whether a path is a file or a link; sockets and pipes of processes that have ended are neither."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return False
    return stat.S_ISREG(mode) or stat.S_ISLNK(mode)
