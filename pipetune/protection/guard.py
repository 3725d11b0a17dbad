"""Protection where the kernel offers none: Python itself keeps a file before it changes it.

Every Python process of the script keeps what it is about to change (see :mod:`pipetune.hook.keep_files`), and so does
each program that it starts by name for the files on its command line. What other programs and compiled libraries write
is covered in the current folder and in those that the command names: files there are copied before the first start, as
far as a limit reaches. What is beyond is compared, and said.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipetune.processes.temporary_folder import prefix_of_folders
from pipetune.protection.contract import Request, Settled
from pipetune.protection.keeper import Keeper
from pipetune.protection.kept_files import measure_written, settle_kept
from pipetune.protection.room import RoomWatch
from pipetune.protection.seen_files import compare_seen, see_files, write_seen
from pipetune.protection.state import KEEP, ProtectionFolder
from pipetune.records.written import GUARD as MECHANISM
from pipetune.records.written import WrittenFiles

#: Files are copied before the first start up to so many bytes together, a tenth of the free room, and so many files.
MAX_COPIED_BYTES = 2 << 30
MAX_COPIED_FREE_SHARE = 0.1
MAX_COPIED_FILES = 20_000
#: Files that are named one by one.
_MAX_NAMED = 5


def open_guard(folder: ProtectionFolder, request: Request) -> Guard:
    """Begin protection; nothing is started yet.

    Raises:
        OSError: the disk refuses.
    """
    guard = Guard(folder, request)
    guard.copy_files()
    return guard


def settle_guard(folder: ProtectionFolder, state: Mapping[str, Any], ended_ns: int | None = None) -> Settled:
    """List what the script has written, then put back what existed before.

    Args:
        state: as :class:`Guard` has written it.
        ended_ns: see :func:`pipetune.protection.put_back.put_back`.
    """
    places, open_places = state.get("places", ()), state.get("open_places", ())
    created, lost = compare_seen(folder.path, places, open_places, ended_ns)
    notes: tuple[str, ...] = ()
    if lost:
        more = f" and {len(lost) - _MAX_NAMED:,} more" if len(lost) > _MAX_NAMED else ""
        notes = (
            "files of yours were changed by something other than the script's Python, and there is no copy of them: "
            f"{', '.join(lost[:_MAX_NAMED])}{more}",
        )
    return settle_kept(folder, MECHANISM, notes, ended_ns, created)


class Guard:
    """See :class:`pipetune.protection.contract.Protection`."""

    mechanism = MECHANISM

    def __init__(self, folder: ProtectionFolder, request: Request) -> None:
        self._folder, self._request = folder, request
        self.open_places = [*(f"{place}/" for place in (*request.open_places, folder.run)), prefix_of_folders()]
        self._room = RoomWatch(str(folder.run), lambda: measure_written(folder.path))
        self._places = named_folders(request)
        self._state = {"places": self._places, "open_places": self.open_places}
        self._is_complete = True

    def copy_files(self) -> None:
        """Note which files there are, and copy what programs other than Python may change: top and newest files first.

        Raises:
            OSError: the disk refuses.
        """
        seen = see_files(self._places, self.open_places)
        write_seen(self._folder.path, seen)
        self._folder.write_state(MECHANISM, self._state)
        keeper = Keeper(str(self._folder.path), self.open_places)
        room = min(MAX_COPIED_BYTES, int(MAX_COPIED_FREE_SHARE * shutil.disk_usage(self._folder.path).free))
        by_worth = sorted(seen, key=lambda path: (path.count("/"), -seen[path][0]))
        for path in by_worth[:MAX_COPIED_FILES]:
            size = seen[path][1]
            if size > room:
                continue
            with contextlib.suppress(OSError):  # one that cannot be read, say
                keeper.keep_in_advance(path)
                room -= size

    def wrap(self, command: Sequence[str]) -> list[str]:
        """The command as it is: Python's ``sitecustomize`` guards it."""
        self._is_complete = False
        return list(command)

    def variables(self) -> dict[str, str]:
        """Where Python's processes find the journal."""
        return {KEEP: str(self._folder.path)}

    def pulse_fd(self) -> int:
        """The lock: while processes of the script run, nobody puts back."""
        return self._folder.lock_fd

    def require_room(self) -> None:
        """The disk of the copies must not be full."""
        self._room.require_room()

    def collect(self) -> WrittenFiles:
        """Put back what existed, and list what was written."""
        written, self._is_complete = settle_guard(self._folder, self._state)
        if self._is_complete:
            write_seen(self._folder.path, see_files(self._places, self.open_places))
        return written

    def close(self) -> None:
        """Remove the copies, unless one of them is still needed."""
        self._folder.close(keep=not self._is_complete)


def named_folders(request: Request) -> list[str]:
    """The current folder, and folders that the command names, themselves or by a file in them; none within another."""
    words = [part for word in request.command for part in (word, word.partition("=")[2])]
    named = [request.cwd / word for word in words if word and "{scratch}" not in word and "\0" not in word]
    folders = [place if place.is_dir() else place.parent for place in named if "/" in str(place)]
    resolved = dict.fromkeys(os.path.realpath(place) for place in (request.cwd, *folders) if place.is_dir())
    wide = {
        "/",
        os.path.realpath(Path.home()),
        "/usr",
        "/usr/bin",
        "/bin",
        "/tmp",
        os.path.realpath(tempfile.gettempdir()),
    }
    places = [place for place in resolved if place == os.path.realpath(request.cwd) or place not in wide]
    return [place for place in places if not any(place.startswith(f"{other}/") for other in places if other != place)]
