"""What stood in the folders of a script before its first start: what has changed without having been kept, is said.

It lies in the run folder (``seen.json``), because the command that opens the folder of a killed sweep needs it, too::

    {"/home/u/job/model.pt": [1700000000000000000, 4096]}
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pipetune.protection.journal import read_entries
from pipetune.protection.state import JOURNAL

#: So many files are looked at.
MAX_SEEN_FILES = 100_000
_LEFT_OUT = frozenset({"__pycache__", "node_modules", "pipetune-runs"})
_NAME = "seen.json"

#: Path -> time of its last change (ns) and size (bytes).
Seen = dict[str, tuple[int, int]]


class Differences(NamedTuple):
    """Files in the folders that are not as they were seen; each tuple sorted."""

    created: tuple[str, ...]
    lost: tuple[str, ...]
    """Changed or removed, and nobody has kept them."""


def see_files(places: Sequence[str], open_places: Sequence[str]) -> Seen:
    """Look at the files and links in folders.

    Args:
        places: the folders.
        open_places: beginnings of paths that are left out.
    """
    seen: Seen = {}
    for path in _files_in(places, tuple(open_places)):
        with contextlib.suppress(OSError):
            state = os.lstat(path)
            if stat.S_ISREG(state.st_mode) or stat.S_ISLNK(state.st_mode):
                seen[path] = (state.st_mtime_ns, state.st_size)
        if len(seen) >= MAX_SEEN_FILES:
            break
    return seen


def write_seen(folder: Path, seen: Mapping[str, tuple[int, int]]) -> None:
    """Put what was seen into the folder ``protection``.

    Raises:
        OSError: the disk refuses.
    """
    (folder / _NAME).write_text(json.dumps(seen), encoding="utf-8")


def compare_seen(
    folder: Path, places: Sequence[str], open_places: Sequence[str], ended_ns: int | None = None
) -> Differences:
    """Compare the folders with what was seen, before anything is put back.

    Args:
        folder: has what was seen, and the journal.
        places: see :func:`see_files`.
        open_places: see :func:`see_files`.
        ended_ns: when the last process of the script had ended for certain (ns since 1970): what has changed since is
            somebody else's work; ``None``: just now.
    """
    try:
        before = {path: (int(time_ns), int(size)) for path, (time_ns, size) in _read(folder).items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return Differences((), ())
    kept = {entry.path for entry in read_entries(folder / JOURNAL)}
    after = see_files(places, open_places)
    is_complete = len(before) < MAX_SEEN_FILES
    created = [path for path in after if path not in before] if is_complete else []
    lost = [path for path, state in before.items() if path not in kept and after.get(path) != state]
    if len(after) >= MAX_SEEN_FILES:  # some were not reached
        lost = [path for path in lost if path in after or not os.path.lexists(path)]
    return Differences(
        tuple(sorted(path for path in created if not _is_later(path, ended_ns))),
        tuple(sorted(path for path in lost if not _is_later(path, ended_ns))),
    )


def _read(folder: Path) -> dict[str, list[int]]:
    content: dict[str, list[int]] = json.loads((folder / _NAME).read_bytes())
    return content


def _files_in(places: Sequence[str], open_places: tuple[str, ...]) -> Iterator[str]:
    for place in places:
        for folder, names, files in os.walk(place):
            names[:] = [name for name in names if name not in _LEFT_OUT]
            if not f"{folder}/".startswith(open_places):
                links = [name for name in names if os.path.islink(os.path.join(folder, name))]
                yield from (os.path.join(folder, name) for name in [*files, *links])


def _is_later(path: str, ended_ns: int | None) -> bool:
    if ended_ns is None:
        return False
    try:
        return os.lstat(path).st_ctime_ns > ended_ns
    except OSError:
        return False
