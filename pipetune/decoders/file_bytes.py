"""Reads files into memory that each thread uses again, because new memory per file costs page faults."""

from __future__ import annotations

import errno
import os
import stat
import threading

#: Size of a file from which on it gets memory of its own, which is freed afterwards (bytes).
_MAX_KEPT = 64 << 20
_own = threading.local()


def read_file(path: str, start: int = 0, size: int | None = None) -> memoryview:
    """The whole file, or ``size`` bytes from ``start`` on; valid in this thread until the next call.

    Raises:
        OSError: it cannot be opened or read, or is no regular file.
    """
    fd = open_regular(path)
    if size is not None:
        try:
            room = _room(size)[:size]
            filled = 0
            while filled < size and (count := os.preadv(fd, [room[filled:]], start + filled)):
                filled += count
            return room[:filled]
        finally:
            os.close(fd)
    try:
        size = os.fstat(fd).st_size
        room = _room(size + 1)  # one more: a file that grows meanwhile is noticed and read to its end
        filled = 0
        while count := os.readv(fd, [room[filled:]]):
            filled += count
            if filled == len(room):
                room = memoryview(bytearray(room) + bytearray(len(room)))
        return room[:filled]
    finally:
        os.close(fd)


def open_regular(path: str) -> int:
    """A descriptor of a regular file.

    What was a file when the data set was read may be a named pipe now, and to open one would wait for its writer.

    Raises:
        OSError: it cannot be opened, or is something else.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file", path)
    return fd


def _room(size: int) -> memoryview:
    if size > _MAX_KEPT:
        return memoryview(bytearray(size))
    room: memoryview | None = getattr(_own, "room", None)
    if room is None or len(room) < size:
        room = _own.room = memoryview(bytearray(max(size, 2 * len(room or b""))))
    return room
