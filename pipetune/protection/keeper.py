"""Keeps a file before it changes: the first version of each path, whoever changes it.

Several processes and threads may keep files in one folder: a lock on the journal lets one at a time decide.
Standard library only: processes of the script use it, too.

A file that is removed or replaced gets another name (a hard link), which takes no room. As long as the script may reach
that inode by some name, its content is copied before it changes.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import replace

from pipetune.protection.copy_file import copy_file, separate_name, set_attributes
from pipetune.protection.journal import Entry, Kind, append_entry, describe_state, parse_lines
from pipetune.protection.kept_table import Inode, KeptTable
from pipetune.protection.state import COPIES, JOURNAL

#: Devices, sockets, shared memory and what the kernel shows are no files of the user's.
LIVE = ("/dev/", "/proc/", "/sys/", "/run/")
#: A file of this size or more is moved away where all of its content goes; a smaller one is copied and keeps its inode,
#: on which another process may hold a lock.
MIN_MOVED_BYTES = 16 << 20
#: A folder with more in it cannot be renamed or removed as a whole.
MAX_TREE_ENTRIES = 100_000
#: What stands in the way of a hard link where a copy may work.
_NO_LINK = frozenset({errno.EXDEV, errno.EPERM, errno.EACCES, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS})
PIN = ".pin"
"""Ending of a second name in ``copies/`` for the inode itself, beside a copy of its content."""


class Keeper:
    """Files are kept in a folder of its own.

    Args:
        folder: has the journal and the copies.
        open_places: beginnings of paths that are not looked at: ``/tmp/pipetune-`` or ``/home/u/pipetune-runs/``.
    """

    def __init__(self, folder: str, open_places: Sequence[str] = ()) -> None:
        self._journal = os.path.join(folder, JOURNAL)
        self._copies = os.path.join(folder, COPIES)
        self._open_places = (*LIVE, folder.rstrip("/") + "/", *open_places)
        self._linked: dict[Inode, str] = {}
        self._several_names: dict[str, Entry] = {}
        """Copy that is a hard link -> its entry, where the file had several names at the start."""
        self._position = 0
        os.makedirs(self._copies, mode=0o700, exist_ok=True)
        self._device = os.stat(self._copies).st_dev
        self._table = KeptTable(self._device)

    def keep_content(self, path: str, *, truncated: bool = False) -> None:
        """Before a file is written to, or made.

        Args:
            path: absolute, without any link in it.
            truncated: all of its content goes with the change.

        Raises:
            OSError: it cannot be kept; the change must not happen.
        """
        state = self._look(path)
        if state is None:
            self.note_created(path)
            return
        if not stat.S_ISREG(state.st_mode) or path.startswith(self._open_places):
            return
        inode = (state.st_dev, state.st_ino)
        self._note_asked(path)
        if self._table.is_settled(path) and inode not in self._linked and state.st_nlink == 1:
            return
        with self._alone() as journal:
            if inode in self._linked:
                self._copy_linked(inode)
            if not self._table.existed(path):
                if state.st_nlink > 1 and state.st_dev != self._device:
                    separate_name(path)
                return
            self._keep_content(journal, path, state, "changed", truncated=truncated)

    def keep_in_advance(self, path: str) -> None:
        """Before something may change a file or link without asking.

        Args:
            path: see :meth:`keep_content`.

        Raises:
            OSError: it cannot be kept.
        """
        state = self._look(path)
        if state is None or path.startswith(self._open_places):
            return
        if not (stat.S_ISREG(state.st_mode) or stat.S_ISLNK(state.st_mode)):
            return
        if state.st_nlink > 1 and state.st_dev != self._device:
            return  # it would have to lose its other names
        with self._alone() as journal:
            if (state.st_dev, state.st_ino) in self._linked:
                self._copy_linked((state.st_dev, state.st_ino))
            if self._table.existed(path):
                self._keep_content(journal, path, state, "prepared", truncated=False)

    def keep_name(self, path: str) -> None:
        """Before a path is removed, replaced or renamed.

        Raises:
            OSError: see :meth:`keep_content`.
        """
        state = self._look(path)
        if state is None or path.startswith(self._open_places):
            return
        self._note_asked(path)
        if self._table.is_settled(path):
            return
        with self._alone() as journal:
            if stat.S_ISDIR(state.st_mode):
                self._keep_folder(journal, path)
            elif self._table.existed(path):
                self._keep_file(journal, path, state)

    def keep_attributes(self, path: str) -> None:
        """Before the mode, the owner or the times of a path change.

        Raises:
            OSError: see :meth:`keep_content`.
        """
        state = self._look(path)
        if state is None or path.startswith(self._open_places) or self._table.is_settled(path):
            return
        if self._table.has_attributes(path):
            return
        with self._alone() as journal:
            if self._table.existed(path) and not self._table.has_attributes(path):
                self._append(journal, self._described(path, "attributes", state))

    def note_created(self, path: str) -> None:
        """Before a path is made that does not exist.

        Raises:
            OSError: the journal cannot be written.
        """
        if path.startswith(self._open_places) or self._table.is_settled(path):
            return
        with self._alone() as journal:
            if not self._table.is_settled(path) and self._look(path) is None:
                self._append(journal, Entry(path=path, kind="created"))

    def _note_asked(self, path: str) -> None:
        if not self._position:
            with self._alone():  # what was prepared stands in the journal
                pass
        if self._table.is_prepared(path):
            with self._alone() as journal:
                self._append(journal, Entry(path=path, kind="asked"))

    def _look(self, path: str) -> os.stat_result | None:
        try:
            return os.lstat(path)
        except OSError:
            return None

    @contextlib.contextmanager
    def _alone(self) -> Iterator[int]:
        """The journal, opened, locked, and read up to its end."""
        # Opened each time: a script may close all of its descriptors, and a lock is shared with what it forks.
        journal = os.open(self._journal, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(journal, fcntl.LOCK_EX)
            self._catch_up(journal)
            yield journal
        finally:
            with contextlib.suppress(OSError):
                fcntl.flock(journal, fcntl.LOCK_UN)
            os.close(journal)

    def _catch_up(self, journal: int) -> None:
        size = os.fstat(journal).st_size
        if size <= self._position:
            return
        data = os.pread(journal, size - self._position, self._position)
        whole = data[: data.rfind(b"\n") + 1]
        for entry in parse_lines(whole):
            self._take(entry)
        self._position += len(whole)
        if len(whole) < len(data):  # torn by a kill: its change did not happen
            os.ftruncate(journal, self._position)

    def _append(self, journal: int, entry: Entry) -> None:
        append_entry(journal, entry)
        self._catch_up(journal)

    def _take(self, entry: Entry) -> None:
        self._table.add(entry)
        if entry.copy is None or entry.kind not in ("changed", "removed", "prepared"):
            return
        if (entry.device, entry.inode) not in self._linked:
            self._note_linked(entry.copy)
            if entry.links > 1:
                if (entry.device, entry.inode) in self._linked:
                    self._several_names[entry.copy] = entry
                elif os.path.lexists(os.path.join(self._copies, entry.copy + PIN)):
                    self._table.copied.setdefault((entry.device, entry.inode), entry)

    def _note_linked(self, name: str) -> None:
        state = self._look(os.path.join(self._copies, name))
        if state is not None and stat.S_ISREG(state.st_mode) and state.st_nlink > 1:
            self._linked[state.st_dev, state.st_ino] = name

    def _described(self, path: str, kind: Kind, state: os.stat_result, copy: str | None = None) -> Entry:
        entry = describe_state(path, kind, state, copy)
        first = self._table.first_attributes(path, state)
        if first is None:
            return entry
        return replace(
            entry,
            mode=first.mode,
            uid=first.uid,
            gid=first.gid,
            mtime_ns=first.mtime_ns,
            atime_ns=first.atime_ns,
        )

    def _next_name(self) -> str:
        number = self._table.count
        while os.path.lexists(os.path.join(self._copies, f"{number:06d}")):
            number += 1
        return f"{number:06d}"

    def _keep_content(self, journal: int, path: str, state: os.stat_result, kind: Kind, *, truncated: bool) -> None:
        shared = self._table.copied.get((state.st_dev, state.st_ino))
        if shared is not None:
            self._append(journal, replace(shared, path=path, kind=kind))
            return
        name = self._next_name()
        copy = os.path.join(self._copies, name)
        if truncated and state.st_size >= MIN_MOVED_BYTES and self._can_be_moved(path, state):
            with self._removed_on_failure(name):
                os.link(path, copy, follow_symlinks=False)
                self._append(journal, self._described(path, kind, state, name))
            self._put_empty(path, state, copy)
            self._linked.pop((state.st_dev, state.st_ino), None)
            return
        with self._removed_on_failure(name):
            copy_file(path, copy)
            has_pin = state.st_nlink > 1 and self._pin(path, copy)
            self._append(journal, self._described(path, kind, state, name))
        if state.st_nlink > 1 and not has_pin:  # nobody could find all of its other names later
            separate_name(path)

    def _pin(self, path: str, copy: str) -> bool:
        """Hold on to a file with several names; whether that is possible."""
        try:
            os.link(path, copy + PIN, follow_symlinks=False)
        except OSError:
            return False
        return True

    @contextlib.contextmanager
    def _removed_on_failure(self, name: str) -> Iterator[None]:
        try:
            yield
        except BaseException:
            for ending in ("", PIN):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(self._copies, name + ending))
            raise

    def _can_be_moved(self, path: str, state: os.stat_result) -> bool:
        if state.st_nlink > 1 or state.st_dev != self._device or state.st_uid != os.geteuid():
            return False
        try:
            return not os.listxattr(path) and os.access(os.path.dirname(path), os.W_OK | os.X_OK)
        except OSError:
            return False

    def _put_empty(self, path: str, state: os.stat_result, copy: str) -> None:
        """Put an empty file with the same mode and owner in the place of one whose content goes."""
        empty = copy + ".empty"
        os.close(os.open(empty, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        set_attributes(empty, state.st_mode, state.st_uid, state.st_gid, (state.st_atime_ns, state.st_mtime_ns))
        os.rename(empty, path)

    def _keep_folder(self, journal: int, path: str) -> None:
        count = 0
        for folder, names, files in os.walk(path):
            names[:] = [name for name in names if self._table.existed(os.path.join(folder, name))]
            inner = [os.path.join(folder, name) for name in [*files, *names]]
            count += len(inner)
            if count > MAX_TREE_ENTRIES:
                raise OSError(errno.EPERM, os.strerror(errno.EPERM))
            for name in inner:
                state = self._look(name)
                if state is not None and not stat.S_ISDIR(state.st_mode) and self._table.existed(name):
                    self._keep_file(journal, name, state)
        for folder, names, _ in os.walk(path, topdown=False):
            for name in (os.path.join(folder, name) for name in names):
                self._note_folder(journal, name)
        self._note_folder(journal, path)

    def _note_folder(self, journal: int, path: str) -> None:
        state = self._look(path)
        if state is not None and stat.S_ISDIR(state.st_mode) and self._table.existed(path):
            self._append(journal, self._described(path, "removed", state))

    def _keep_file(self, journal: int, path: str, state: os.stat_result) -> None:
        if not (stat.S_ISREG(state.st_mode) or stat.S_ISLNK(state.st_mode)):
            return
        changed = self._table.copied.get((state.st_dev, state.st_ino))
        if changed is not None:  # by another name of the same file
            self._append(journal, replace(changed, path=path, kind="removed"))
            return
        name = self._next_name()
        copy = os.path.join(self._copies, name)
        with self._removed_on_failure(name):
            try:
                os.link(path, copy, follow_symlinks=False)
            except OSError as error:
                if error.errno not in _NO_LINK:
                    raise
                copy_file(path, copy)
            self._append(journal, self._described(path, "removed", state, name))

    def _copy_linked(self, inode: Inode) -> None:
        """Give what is kept of an inode content of its own, because the inode is about to change."""
        name = self._linked.pop(inode)
        kept = os.path.join(self._copies, name)
        if (before := self._look(kept)) is None or (before.st_dev, before.st_ino) != inode:
            return
        copy_file(kept, kept + ".copy")
        entry = self._several_names.get(name)
        if entry is not None:
            with contextlib.suppress(FileExistsError):
                os.link(kept, kept + PIN, follow_symlinks=False)
            self._table.copied.setdefault(inode, entry)
        os.rename(kept + ".copy", kept)
