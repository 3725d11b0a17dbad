"""What a script has written, in sentences. Pure."""

from __future__ import annotations

import os
from collections.abc import Sequence

from pipetune.records.written import UNPROTECTED, WrittenFiles

#: Paths that a sentence names.
MAX_NAMED = 10


def describe_written(
    written: WrittenFiles, cwd: str, *, most: int = MAX_NAMED, where: os.PathLike[str] | None = None
) -> list[str]:
    """Sentences without a full stop; empty: it has written nothing.

    Args:
        cwd: paths below it are written relative to it, and come first.
        most: paths that each sentence names, and remarks.
        where: file that names all of them; ``None``: it need not be said.
    """
    lines = []
    touched = sorted({*written.changed, *written.removed}.difference(written.unrestored))
    if written.mechanism == UNPROTECTED:
        if written.changed:
            lines.append(f"the script changed {_count(written.changed)} of yours: {_names(written.changed, cwd, most)}")
        if written.removed:
            lines.append(f"the script removed {_count(written.removed)} of yours: {_names(written.removed, cwd, most)}")
    elif touched:
        are = "which is as it was before" if len(touched) == 1 else "which are as they were before"
        lines.append(f"the script wrote or removed {_count(touched)} of yours, {are}: {_names(touched, cwd, most)}")
    if written.created:
        new = f"{len(written.created):,} new {'file' if len(written.created) == 1 else 'files'}"
        lines.append(f"the script made {new}: {_names(written.created, cwd, most)}")
    if where is not None and max(len(touched), len(written.created)) > most:
        lines.append(f"all of them are named in {os.fspath(where)}")
    lines += written.notes[:most]
    if len(written.notes) > most:
        place = "" if where is None else f" in {os.fspath(where)}"
        lines.append(f"{len(written.notes) - most:,} more such lines{place}")
    return lines


def _count(paths: Sequence[str]) -> str:
    return f"{len(paths):,} {'file' if len(paths) == 1 else 'files'}"


def _names(paths: Sequence[str], cwd: str, most: int) -> str:
    inside = [path for path in paths if path.startswith(cwd.rstrip("/") + "/")]
    outside = [path for path in paths if path not in set(inside)]
    shown = [*(os.path.relpath(path, cwd) for path in inside), *outside]
    more = len(shown) - most
    return ", ".join(shown[:most]) + (f" and {more:,} more" if more > 0 else "")
