"""Watches the disk that takes what a script writes while it is tuned, so that a sweep ends before the disk is full.

What is kept is that of all starts: a script that saves a checkpoint under a new name in each start fills a disk that is
large enough for one training.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator

from pipetune.errors import PipetuneError
from pipetune.units import format_bytes

#: Room that a sweep leaves free: so much, or this share of the room at its beginning where that is less.
MAX_RESERVE_BYTES = 1 << 30
RESERVE_SHARE = 0.1
#: ``st_blocks`` counts in these.
_BLOCK_BYTES = 512


class DiskNearlyFullError(PipetuneError):
    """A sweep has used up the room that its disk had, but for the reserve."""


class RoomWatch:
    """The room of one disk, from now on.

    Args:
        folder: lies on the disk; absolute.
        measure_stored: bytes that what the script has written takes on any disk; asked for the message only.

    Raises:
        OSError: the disk cannot be asked.
    """

    def __init__(self, folder: str, measure_stored: Callable[[], int]) -> None:
        self._folder, self._measure_stored = folder, measure_stored
        self._free_at_begin_bytes = _measure_free_bytes(folder)
        self._reserve_bytes = min(MAX_RESERVE_BYTES, int(RESERVE_SHARE * self._free_at_begin_bytes))

    def require_room(self) -> None:
        """Refuse to go on where the reserve is touched. Takes microseconds; may be called often.

        Raises:
            DiskNearlyFullError: less than the reserve is free.
        """
        try:
            free_bytes = _measure_free_bytes(self._folder)
        except OSError:
            return
        if free_bytes >= self._reserve_bytes:
            return
        raise DiskNearlyFullError(
            f"the script has written {format_bytes(self._measure_stored())}, and the disk of {self._folder} has "
            f"{format_bytes(free_bytes)} left of {format_bytes(self._free_at_begin_bytes)} "
            f"({format_bytes(self._reserve_bytes)} are kept free)",
            hint="choose another disk with --out DIR, let the script write to {scratch}, or use --allow-writes",
        )


def measure_disk_use(paths: Iterable[str]) -> int:
    """Bytes that files, and all files in folders, take on their disks; a file with several names counts once."""
    seen: set[tuple[int, int]] = set()
    total = 0
    for path in paths:
        for state in _states_below(path):
            if (state.st_dev, state.st_ino) not in seen:
                seen.add((state.st_dev, state.st_ino))
                total += _BLOCK_BYTES * state.st_blocks
    return total


def _states_below(path: str) -> Iterator[os.stat_result]:
    try:
        yield os.lstat(path)
    except OSError:
        return
    if os.path.islink(path):
        return
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                yield os.lstat(os.path.join(folder, name))
            except OSError:
                continue


def _measure_free_bytes(folder: str) -> int:
    room = os.statvfs(folder)
    return room.f_bavail * room.f_frsize
