"""The journal of mechanisms that copy a file before it changes: one JSON line for the first change of each path.

Sample line::

    {"path": "/home/u/model.pt", "kind": "changed", "copy": "000001", "mode": 33188, "mtime_ns": 1, "atime_ns": 1,
     "uid": 1000, "gid": 1000, "size": 7, "device": 65024, "inode": 12, "links": 1}

``kind`` is ``changed`` or ``removed`` (the path existed, and ``copy`` names what stands for it in ``copies/``),
``prepared`` (as ``changed``, but copied in advance: nobody has asked to change it yet; an ``asked`` line comes when a
process of the script does), ``attributes`` (only its mode, owner or times are about to change; there is no copy) or
``created`` (it did not exist).
What stands in ``copies/`` is a copy, a hard link, or the file itself (where a new version takes its place). A folder
has none: what was in it has lines of its own. A line is written, in one ``write``, after its copy is whole and before
the change happens. Standard library only: processes of the script write it, too.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

Kind = Literal["changed", "removed", "prepared", "asked", "attributes", "created"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line."""

    path: str
    """Absolute, without links in its folders. Bytes that are not UTF-8 are surrogates, as ``os.fsdecode`` has them."""
    kind: Kind
    copy: str | None = None
    """Name of the copy in ``copies/``; ``None``: there is none."""
    mode: int = 0
    """``st_mode``: type and permissions."""
    mtime_ns: int = 0
    atime_ns: int = 0
    uid: int = 0
    gid: int = 0
    size: int = 0
    """In bytes."""
    device: int = 0
    """``st_dev`` and ``st_ino`` of the file when it was kept."""
    inode: int = 0
    links: int = 1
    """Names that the file had (``st_nlink``)."""


def describe_state(path: str, kind: Kind, state: os.stat_result, copy: str | None = None) -> Entry:
    """The entry of a path that exists."""
    return Entry(
        path=path,
        kind=kind,
        copy=copy,
        mode=state.st_mode,
        mtime_ns=state.st_mtime_ns,
        atime_ns=state.st_atime_ns,
        uid=state.st_uid,
        gid=state.st_gid,
        size=state.st_size,
        device=state.st_dev,
        inode=state.st_ino,
        links=state.st_nlink,
    )


def append_entry(fd: int, entry: Entry) -> None:
    """Add one line to the journal.

    Args:
        fd: opened with ``O_APPEND``.

    Raises:
        OSError: the disk refuses; a line that is not whole has been taken back.
    """
    line = json.dumps(asdict(entry)).encode() + b"\n"
    before = os.fstat(fd).st_size
    try:
        written = os.write(fd, line)
    except OSError:
        os.ftruncate(fd, before)
        raise
    if written != len(line):  # the disk is full
        with contextlib.suppress(OSError):
            os.ftruncate(fd, before)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def parse_lines(data: bytes) -> Iterator[Entry]:
    """The whole lines, in their order; a torn last line is left out, because its change did not happen.

    A line that a power cut has damaged is left out, too: see :func:`count_damaged_lines`.
    """
    for line in data.split(b"\n")[:-1]:
        with contextlib.suppress(ValueError, TypeError):
            yield Entry(**json.loads(line))


def read_entries(journal: Path) -> list[Entry]:
    """What stands in a journal; nothing where there is none."""
    return list(parse_lines(_read(journal)))


def count_damaged_lines(journal: Path) -> int:
    """Lines of a journal that say nothing."""
    data = _read(journal)
    return data.count(b"\n") - len(list(parse_lines(data)))


def _read(journal: Path) -> bytes:
    try:
        return journal.read_bytes()
    except FileNotFoundError:
        return b""
