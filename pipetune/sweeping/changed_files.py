"""Which files a script has written, changed or removed: names and times before and after."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from pipetune.records.written import UNPROTECTED, WrittenFiles

#: So many entries are looked at; beyond, what changed is not known.
MOST = 50_000
_LEFT_OUT = frozenset({"__pycache__", ".git", "pipetune-runs", "node_modules"})

#: Path -> time of its last change (ns) and size (bytes).
Snapshot = Mapping[str, tuple[int, int]]


def places_of(command: Sequence[str], cwd: Path) -> list[Path]:
    """The working folder, and folders that the command names: ``--output-dir runs`` and ``--out=runs``."""
    words = [part for word in command for part in (word, word.partition("=")[2])]
    named = [cwd / word for word in words if word and "{scratch}" not in word]
    return list(dict.fromkeys([cwd, *(place.resolve() for place in named if os.path.isdir(place))]))


def snapshot(places: Sequence[Path], without: Collection[Path] = ()) -> Snapshot | None:
    """The files below these places as they are; ``None``: there are too many to look at.

    Args:
        without: folders that are left out.
    """
    found: dict[str, tuple[int, int]] = {}
    skipped = {str(place.resolve()) for place in without}
    for place in places:
        for entry in _files(str(place), skipped):
            try:
                state = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            found[entry.path] = (state.st_mtime_ns, state.st_size)
            if len(found) > MOST:
                return None
    return found


def _files(folder: str, skipped: Collection[str]) -> Iterator[os.DirEntry[str]]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            if entry.name not in _LEFT_OUT and entry.path not in skipped:
                yield from _files(entry.path, skipped)
        else:
            yield entry


def list_changes(before: Snapshot, after: Snapshot) -> WrittenFiles:
    """Files that are new, changed or gone."""
    return WrittenFiles(
        mechanism=UNPROTECTED,
        created=tuple(sorted(after.keys() - before.keys())),
        changed=tuple(sorted(path for path in before.keys() & after.keys() if before[path] != after[path])),
        removed=tuple(sorted(before.keys() - after.keys())),
    )
