"""The folder ``protection`` of a run folder: what a mechanism needs to put files back, also after ``kill -9``.

::

    RUN/protection/
        lock          locked (flock) by pipetune and by the supervisor of each start, until everything has ended; its
                      time of change is when something of the script last ran, to a second
        reserve       holds room for written.json, for a script that fills the disk
        written.json  what is listed already, so that nothing is forgotten when it is put back in two goes
        state.json    {"schema": 1, "mechanism": "overlay", …}: written before the first start, whole
        journal.jsonl and copies/    of the mechanisms that copy: see pipetune/protection/journal.py

While the folder exists, something may have to be put back. It is removed when that is done. Imports the standard
library and records only.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pipetune.records.written import WrittenFiles, merge_written

FOLDER, LOCK, STATE, JOURNAL, COPIES = "protection", "lock", "state.json", "journal.jsonl", "copies"
WRITTEN, RESERVE = "written.json", "reserve"
RESERVE_BYTES = 1 << 20
#: The folder of a run folder that takes what has no place any more.
KEPT = "written"
#: Environment variable with this folder, for Python's processes of the script where they have to keep files themselves.
KEEP = "PIPETUNE_KEEP"
SCHEMA = 1
#: Longest time that a supervisor takes to end everything of a start whose pipetune was killed (s).
_END_S = 20.0
_CHECK_S = 0.1
#: A start whose supervisor has set the time of ``lock`` within so long may still run, where locks do not tell (s).
_FRESH_S = 30.0


class InUseError(Exception):
    """Processes of a start still run."""


class ProtectionFolder:
    """A run folder's folder ``protection``, locked by this process.

    Args:
        run: the run folder.

    Raises:
        InUseError: after a wait, another process still holds the lock.
        OSError: the disk refuses.
    """

    def __init__(self, run: Path) -> None:
        self.run = run.resolve()
        self.path = self.run / FOLDER
        self.path.mkdir(mode=0o700, exist_ok=True)
        self.lock_fd = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        """Locked. Its time is set by the supervisors of starts (:class:`pipetune.processes.supervised.Supervised`)."""
        try:
            self._has_locks = _lock(self.lock_fd)
        except BaseException:
            os.close(self.lock_fd)
            raise
        self._closed = False
        self._unwritten: WrittenFiles | None = None
        """What is listed and could not be written."""
        self._reserve_room()

    def require_ended(self) -> None:
        """Refuse a folder in which a sweep may still run, where its lock does not say so.

        Some network file systems have no locks, or each machine has its own.

        Raises:
            InUseError: its processes were seen a moment ago.
        """
        state = self.read_state()
        is_elsewhere = state is not None and state.get("boot") != _boot_id()
        if (not self._has_locks or is_elsewhere) and time.time() - self.last_ran_ns / 1e9 < _FRESH_S:
            raise InUseError

    @property
    def last_ran_ns(self) -> int:
        """When something of the script last ran, or when the folder was made (ns since 1970)."""
        return os.fstat(self.lock_fd).st_mtime_ns

    def write_state(self, mechanism: str, fields: Mapping[str, Any]) -> None:
        """Replace the state as a whole; it is on the disk when this returns."""
        self._replace(self.path / STATE, {"schema": SCHEMA, "mechanism": mechanism, "boot": _boot_id(), **fields})

    def read_state(self) -> dict[str, Any] | None:
        """The state; ``None``: no mechanism has begun, and nothing has to be put back."""
        try:
            state = json.loads((self.path / STATE).read_bytes())
        except (OSError, ValueError):
            return None
        return state if isinstance(state, dict) and state.get("schema") == SCHEMA else None

    def remember_written(self, more: WrittenFiles) -> WrittenFiles:
        """Add to what the script has written, and return all of it; it is on the disk then, unless that is full."""
        target = self.path / WRITTEN
        with contextlib.suppress(OSError):
            (self.path / RESERVE).unlink()
        try:
            fields: dict[str, Any] = json.loads(target.read_bytes())
            mechanism = str(fields.pop("mechanism"))
            before = WrittenFiles(mechanism=mechanism, **{name: tuple(paths) for name, paths in fields.items()})
        except (OSError, ValueError, KeyError, TypeError):
            before = WrittenFiles(mechanism=more.mechanism)
        if self._unwritten is not None:
            before = merge_written(before, self._unwritten)
        written = merge_written(before, more)
        try:
            self._replace(target, asdict(written))
        except OSError:  # to put files back takes no room: that goes on
            self._unwritten = written
        return written

    def _reserve_room(self) -> None:
        with contextlib.suppress(OSError):
            fd = os.open(self.path / RESERVE, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                os.posix_fallocate(fd, 0, RESERVE_BYTES)
            finally:
                os.close(fd)

    def _replace(self, target: Path, content: Mapping[str, Any]) -> None:
        new = target.with_name(f"{target.name}.new")
        with open(new, "w", encoding="utf-8") as file:
            json.dump(content, file)
            file.flush()
            os.fsync(file.fileno())
        new.rename(target)

    def close(self, *, keep: bool = False) -> None:
        """Remove the folder and give the lock back. May be called again.

        Args:
            keep: something in it is still needed.
        """
        if self._closed:
            return
        self._closed = True
        if not keep:
            remove_tree(self.path)
        os.close(self.lock_fd)


def remove_tree(folder: str | Path) -> None:
    """Remove a folder with everything in it that can be removed; overlayfs leaves folders that nobody may enter."""
    for place, names, _ in os.walk(folder):
        for name in names:
            path = os.path.join(place, name)
            if not os.path.islink(path):
                with contextlib.suppress(OSError):
                    os.chmod(path, 0o700)
    shutil.rmtree(folder, ignore_errors=True)


def _boot_id() -> str:
    """What tells this machine, since its start, from all others; empty where the kernel does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _lock(fd: int) -> bool:
    """Lock a file; returns whether that was possible: not on a file system without locks."""
    deadline = time.monotonic() + _END_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise InUseError from None
            time.sleep(_CHECK_S)
        except OSError:
            return False
