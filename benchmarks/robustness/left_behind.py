"""What processes leave behind when they end, for ``benchmarks/robustness/leaks.py``.

Ours is every process with a variable of this run in its environment, which all descendants inherit wherever they end
up, and every descendant that was ever seen, in case one of them gave itself another environment.
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

#: So long may it take to end, and to clean up (s).
GRACE_S = 10.0
THINGS = ("processes", "/dev/shm", "descriptors", "threads", "temporary")
_MARK = "PIPETUNE_LEAKS_RUN"

#: Kind of thing -> names of what there is of it.
Things = dict[str, set[str]]


class Scene:
    """What is there that was not there before.

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
        """Descendants so far."""
        return self._watcher.ever

    def begin(self) -> None:
        """What is there now is no leak."""
        self._known = self._look()

    def left(self) -> Things:
        """What is new since the last call and still there when the grace is over. Such processes are then ended."""
        left = settled(self._look, self._known)
        for thing, names in left.items():
            self._known[thing] |= names
        left["/dev/shm"] = {name for name in left["/dev/shm"] if not self._somebody_elses(name)}
        # A folder says enough about what is in it.
        left["temporary"] = {name for name in left["temporary"] if str(Path(name).parent) not in left["temporary"]}
        for pid in self._marked() | self._watcher.alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return left

    def _look(self) -> Things:
        return {
            **own_things(),
            "processes": {str(pid) for pid in self._marked() | self._watcher.alive()},
            "/dev/shm": set(os.listdir("/dev/shm")),
            "temporary": {str(path.relative_to(self._temporary)) for path in self._temporary.rglob("*")},
        }

    def _marked(self) -> set[int]:
        wanted = f"{_MARK}={self._run}".encode()
        return {pid for pid in _others() if wanted in _read(pid, "environ")}

    def _somebody_elses(self, name: str) -> bool:
        """Whether another's process uses this entry of /dev/shm; one of ours would count itself."""
        return any(f"/dev/shm/{name}".encode() in _read(pid, "maps") for pid in _others())


def settled(look: Callable[[], Things], known: Things) -> Things:
    """What is new when nothing is new any more, or when the grace is over."""
    deadline = time.monotonic() + GRACE_S
    while True:
        new = {thing: names - known[thing] for thing, names in look().items()}
        if not any(new.values()) or time.monotonic() > deadline:
            return new
        time.sleep(0.05)


def own_things() -> Things:
    """What this process holds, children that it has not reaped included."""
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
        """Looks ten times a second."""
        me = psutil.Process()
        while True:
            with contextlib.suppress(psutil.Error):
                for process in me.children(recursive=True):
                    key = (process.pid, process.create_time())
                    self.ever += key not in self._seen
                    self._seen[key] = process
            time.sleep(0.1)

    def alive(self) -> set[int]:
        """Numbers of those that still run."""
        return {process.pid for process in list(self._seen.values()) if _is_alive(process)}


def _is_alive(process: psutil.Process) -> bool:
    """A zombie counts where it is ours to reap, and not where whoever adopts orphans is slow."""
    try:
        return process.is_running() and (process.status() != psutil.STATUS_ZOMBIE or process.ppid() == os.getpid())
    except psutil.Error:
        return False


def _others() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal() and int(name) != os.getpid()]


def _read(pid: int, name: str) -> bytes:
    """A file of a process; empty when the process has ended or is somebody else's."""
    try:
        return Path("/proc", str(pid), name).read_bytes()
    except OSError:
        return b""
