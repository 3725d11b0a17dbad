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
import stat
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from pipetune.processes.temporary_folder import prefix_of_folders
from pipetune.protection.contract import Request
from pipetune.protection.journal import read_entries
from pipetune.protection.keeper import Keeper
from pipetune.protection.kept_files import settle_kept
from pipetune.protection.state import JOURNAL, KEEP, ProtectionFolder
from pipetune.records.written import GUARD as MECHANISM
from pipetune.records.written import WrittenFiles

#: Files are copied before the first start up to so many bytes together, a tenth of the free room, and so many files.
MAX_COPIED_BYTES = 2 << 30
MAX_COPIED_FREE_SHARE = 0.1
MAX_COPIED_FILES = 20_000
#: So many files are looked at.
MAX_SEEN_FILES = 100_000
_LEFT_OUT = frozenset({"__pycache__", "node_modules", "pipetune-runs"})
#: Files that are named one by one.
_MAX_NAMED = 5

#: Path -> time of its last change (ns) and size (bytes).
Seen = dict[str, tuple[int, int]]


def open_guard(folder: ProtectionFolder, request: Request) -> Guard:
    """Begin protection; nothing is started yet.

    Raises:
        OSError: the disk refuses.
    """
    guard = Guard(folder, request)
    folder.write_state(MECHANISM, {"open_places": guard.open_places})
    guard.copy_files()
    return guard


class Guard:
    """See :class:`pipetune.protection.contract.Protection`."""

    mechanism = MECHANISM

    def __init__(self, folder: ProtectionFolder, request: Request) -> None:
        self._folder, self._request = folder, request
        self.open_places = [*(f"{place}/" for place in (*request.open_places, folder.run)), prefix_of_folders()]
        self._seen: Seen = {}
        self._copied: set[str] = set()
        self._is_complete = True

    def copy_files(self) -> None:
        """Copy files that programs other than Python may change, the ones near the top and the newest first.

        Raises:
            OSError: the journal cannot be written.
        """
        keeper = Keeper(str(self._folder.path), self.open_places)
        self._seen = self._look()
        room = min(MAX_COPIED_BYTES, int(MAX_COPIED_FREE_SHARE * shutil.disk_usage(self._folder.path).free))
        by_worth = sorted(self._seen, key=lambda path: (path.count("/"), -self._seen[path][0]))
        for path in by_worth[:MAX_COPIED_FILES]:
            size = self._seen[path][1]
            if size > room:
                continue
            with contextlib.suppress(OSError):  # one that cannot be read, say
                keeper.keep_in_advance(path)
                self._copied.add(path)
                room -= size

    def _look(self) -> Seen:
        seen: Seen = {}
        for path in self._files():
            with contextlib.suppress(OSError):
                state = os.lstat(path)
                if stat.S_ISREG(state.st_mode) or stat.S_ISLNK(state.st_mode):
                    seen[path] = (state.st_mtime_ns, state.st_size)
            if len(seen) >= MAX_SEEN_FILES:
                break
        return seen

    def _files(self) -> Iterator[str]:
        for place in named_folders(self._request):
            for folder, names, files in os.walk(place):
                names[:] = [name for name in names if name not in _LEFT_OUT]
                if not f"{folder}/".startswith(tuple(self.open_places)):
                    links = [name for name in names if os.path.islink(os.path.join(folder, name))]
                    yield from (os.path.join(folder, name) for name in [*files, *links])

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

    def collect(self) -> WrittenFiles:
        """Put back what existed, and list what was written."""
        created, lost = self._compare()
        if created:
            self._folder.remember_written(WrittenFiles(mechanism=MECHANISM, created=created))
        notes: tuple[str, ...] = ()
        if lost:
            named = ", ".join(lost[:_MAX_NAMED]) + (
                f" and {len(lost) - _MAX_NAMED} more" if len(lost) > _MAX_NAMED else ""
            )
            notes = (f"files were changed by something other than Python, and there is no copy of them: {named}",)
        written, self._is_complete = settle_kept(self._folder, MECHANISM, notes)
        if self._is_complete:
            self._seen = self._look()
        return written

    def _compare(self) -> tuple[tuple[str, ...], list[str]]:
        """Files that are new, and files that were changed without having been kept."""
        entries = {entry.path: entry for entry in read_entries(self._folder.path / JOURNAL)}
        after = self._look()
        complete = len(self._seen) < MAX_SEEN_FILES
        created = sorted(path for path in after if path not in self._seen) if complete else []
        lost = sorted(
            path for path, before in self._seen.items() if path not in entries and after.get(path, (0, 0)) != before
        )
        # A new file that another program was about to be given was kept in advance, as if it were an old one.
        listed = {path for path, entry in entries.items() if entry.kind not in ("prepared", "attributes")}
        return tuple(path for path in created if path not in listed), lost

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
