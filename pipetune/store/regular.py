"""Reading files that somebody else may have made: regular ones only, and no more bytes than a reader has room for.

A run folder may come from anybody. A named pipe in the place of one of its files would be waited for without end, and
a line without an end, or a file of a terabyte, would fill the memory.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

#: Largest file with one object: ``run.json``, ``result.json`` (some 2 kB per measurement).
MOST_OBJECT_BYTES = 64 << 20
#: Longest line of ``outcomes.jsonl`` (some 3 kB) and of a watch (some 4 kB per rank).
MOST_LINE_BYTES = 4 << 20
#: What is read of a file of lines: 20,000 measurements, or the windows of a week.
MOST_LINES_BYTES = 256 << 20


class TooLargeError(ValueError):
    """A file, or a line of one, is larger than pipetune reads."""


def open_regular(path: str | Path) -> BinaryIO:
    """Open a file to read it.

    Raises:
        OSError: it cannot be opened, or is a folder, a named pipe or a device.
    """
    # O_NONBLOCK: opening a named pipe would wait for a writer.
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        return os.fdopen(fd, "rb")
    except BaseException:
        os.close(fd)
        raise


def read_whole(path: str | Path, most_bytes: int = MOST_OBJECT_BYTES) -> bytes:
    """The contents of a file.

    Raises:
        TooLargeError: it has more bytes than these.
        OSError: see :func:`open_regular`.
    """
    pieces, length = [], 0
    with open_regular(path) as file:
        # As many bytes as there are: a read sets memory aside for all that it is asked for.
        size = os.fstat(file.fileno()).st_size
        while length <= most_bytes and (piece := file.read(min(max(size - length, 0), most_bytes) + 1)):
            pieces.append(piece)
            length += len(piece)
    if length > most_bytes:
        raise TooLargeError(f"it has more than {most_bytes >> 20} MiB, which pipetune does not read")
    return b"".join(pieces)


def read_lines(
    path: str | Path, most_line_bytes: int = MOST_LINE_BYTES, most_bytes: int = MOST_LINES_BYTES
) -> Iterator[bytes | None]:
    """The lines of a file, with their ends; ``None`` for one that is too long, which is passed over.

    A last line may lack its end.

    Raises:
        TooLargeError: the file goes on after ``most_bytes``, which were given out before.
        OSError: see :func:`open_regular`.
    """
    left = most_bytes
    with open_regular(path) as file:
        while line := file.readline(most_line_bytes):
            whole: bytes | None = line
            left -= len(line)
            while not line.endswith(b"\n") and len(line) == most_line_bytes and left > 0:
                whole = None
                line = file.readline(most_line_bytes)
                left -= len(line)
            if left < 0:
                raise TooLargeError(f"it has more than {most_bytes >> 20} MiB, and the rest was left out")
            yield whole
