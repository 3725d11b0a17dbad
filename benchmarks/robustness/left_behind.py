"""What processes leave behind when they end, for ``leaks.py``.

A process belongs to the run when a variable of this run is in its environment, which all descendants inherit wherever
they end up, or when it was ever seen as a descendant, in case it gave itself another environment.
"""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import psutil

#: Time that ending and cleaning up may take (s).
GRACE_S = 10.0
THINGS = ("processes", "/dev/shm", "descriptors", "threads", "temporary")
_MARK = "PIPETUNE_LEAKS_RUN"

#: Kind of thing -> names.
Things = dict[str, set[str]]


class Scene:
    """Finds what exists now and did not before.

    Args:
        folder: where this process and all its descendants put temporary files from now on; exists and is empty.
    """

    def __init__(self, folder: Path) -> None:
        self._temporary, self._run = folder, uuid.uuid4().hex
        os.environ.update({_MARK: self._run, "TMPDIR": str(folder)})
        tempfile.tempdir = None  # read TMPDIR again
        self._watcher = _Watcher()
        self._watcher.start()
        self._known: Things = {}

    @property
    def processes_seen(self) -> int:
        """How many descendants there were so far."""
        return self._watcher.ever

    def begin(self) -> None:
        """Everything that exists now is no leak."""
        self._known = self._now()

    def left(self) -> Things:
        """What is new since the last call and still there after the grace period. Such processes are then ended."""
        left = settled(self._now, self._known)
        for thing, names in left.items():
            self._known[thing] |= names
        left["/dev/shm"] = {name for name in left["/dev/shm"] if not self._is_foreign(name)}
        # A folder says enough about what is in it.
        left["temporary"] = {name for name in left["temporary"] if str(Path(name).parent) not in left["temporary"]}
        for pid in self._marked() | self._watcher.alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return left

    def _now(self) -> Things:
        return {
            **own_things(),
            "processes": {str(pid) for pid in self._marked() | self._watcher.alive()},
            "/dev/shm": set(os.listdir("/dev/shm")),
            "temporary": {str(path.relative_to(self._temporary)) for path in self._temporary.rglob("*")},
        }

    def _marked(self) -> set[int]:
        wanted = f"{_MARK}={self._run}".encode()
        return {pid for pid in _others() if wanted in _read(pid, "environ")}

    def _is_foreign(self, name: str) -> bool:
        """Whether a foreign process uses this entry of /dev/shm; one of this run would be counted itself."""
        return any(f"/dev/shm/{name}".encode() in _read(pid, "maps") for pid in _others())


def settled(now: Callable[[], Things], known: Things) -> Things:
    """What is new once nothing is, or once the grace period is over."""
    deadline = time.monotonic() + GRACE_S
    while True:
        new = {thing: names - known[thing] for thing, names in now().items()}
        if not any(new.values()) or time.monotonic() > deadline:
            return new
        time.sleep(0.05)


def own_things() -> Things:
    """What this process holds, with children that it has not reaped."""
    descriptors, threads, children = set(), set(), set()
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the one that lists this folder is gone by now
            descriptors.add(f"{number} {os.path.basename(os.readlink(f'/proc/self/fd/{number}'))}")
    for number in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):
            threads.add(f"{number} {Path('/proc/self/task', number, 'comm').read_text().strip()}")
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            children.add(f"{child.pid} {child.name()}, {child.status()}")
    return {"processes": children, "descriptors": descriptors, "threads": threads}


class _Watcher(threading.Thread):
    """Remembers every descendant that it ever sees alive, by number and start time."""

    def __init__(self) -> None:
        super().__init__(name="leaks-watcher", daemon=True)
        self._seen: dict[tuple[int, float], psutil.Process] = {}
        self.ever = 0

    def run(self) -> None:
        """List the descendants ten times a second."""
        me = psutil.Process()
        while True:
            with contextlib.suppress(psutil.Error):
                for process in me.children(recursive=True):
                    key = (process.pid, process.create_time())
                    self.ever += key not in self._seen
                    self._seen[key] = process
            time.sleep(0.1)

    def alive(self) -> set[int]:
        """PIDs of those that still run."""
        return {process.pid for process in list(self._seen.values()) if _is_alive(process)}


def _is_alive(process: psutil.Process) -> bool:
    """Whether it runs. A zombie counts where it is a child of this process, and not where init is slow to reap it."""
    try:
        zombie = process.status() == psutil.STATUS_ZOMBIE
        return bool(process.is_running()) and (not zombie or process.ppid() == os.getpid())
    except psutil.Error:
        return False


def _others() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal() and int(name) != os.getpid()]


def _read(pid: int, name: str) -> bytes:
    """A file of a process; empty when the process has ended or belongs to another user."""
    try:
        return Path("/proc", str(pid), name).read_bytes()
    except OSError:
        return b""
