"""The journal of mechanisms that copy a file before it changes: one JSON line for the first change of each path.

Sample line::

    {"path": "/home/u/model.pt", "kind": "changed", "copy": "000001", "mode": 33188, "mtime_ns": 1, "atime_ns": 1,
     "uid": 1000, "gid": 1000}

``kind`` is ``changed`` or ``removed`` (the path existed, and ``copy`` names what stands for it in ``copies/``), or
``created`` (it did not exist, ``copy`` is ``null``). A line is on its way to the disk (one ``write``) before the change
happens. Standard library only: processes of the script write it, too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

Kind = Literal["changed", "removed", "created"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line."""

    path: str
    """Absolute, without links in its folders."""
    kind: Kind
    copy: str | None = None
    """Name of the copy in ``copies/``; ``None``: there is none, because the path did not exist."""
    mode: int = 0
    """``st_mode``: type and permissions."""
    mtime_ns: int = 0
    atime_ns: int = 0
    uid: int = 0
    gid: int = 0


def append_entry(fd: int, entry: Entry) -> None:
    """Add one line to the journal.

    Args:
        fd: opened with ``O_APPEND``.
    """
    os.write(fd, json.dumps(asdict(entry)).encode() + b"\n")


def read_entries(journal: Path) -> Iterator[Entry]:
    """The whole lines, in their order; a torn last line is left out, because its change did not happen."""
    try:
        data = journal.read_bytes()
    except FileNotFoundError:
        return
    for line in data.split(b"\n")[:-1]:
        yield Entry(**json.loads(line))
