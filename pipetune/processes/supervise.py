"""The program that starts a command of the user's and ends everything that it has started, whatever happens.

It adopts orphans (``PR_SET_CHILD_SUBREAPER``), so a daemonised or re-parented process stays below it, in whatever
process group or session it may be. It ends all of them when the command has ended, and when its standard input closes:
the kernel closes that when pipetune dies, also by SIGKILL.

Its first argument is the descriptor of a file, or nothing; the command follows. The file's time of change says when
something of the command last ran.

On standard output, JSON lines: ``{"pid": …}`` once the command runs, ``{"exit": …}`` with its return code (negative:
the signal), or ``{"error": …}``.

Why not a process group: launchers put ranks into sessions of their own.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_CHECK_S = 0.05
#: So often the time of the file is set (s).
_BEAT_S = 1.0
#: Lists what one thread has forked; kernels without CONFIG_PROC_CHILDREN have no such file.
_CHILDREN = "/proc/thread-self/children"
#: Longest time for everything to end after SIGKILL, and for trackers to end by themselves (s).
_END_S, _TRACKER_S = 10.0, 3.0
#: A part of the command line of Python's resource tracker (``multiprocessing/resource_tracker.py``).
_TRACKER = b"multiprocessing.resource_tracker"
_SHM = "/dev/shm"
#: By how much a file's time may be behind the clock: the kernel takes that of its last tick (s).
_CLOCK_LAG_S = 0.05


def main(arguments: list[str]) -> int:
    """Run the command; returns 0 once nothing of it is left."""
    pulse_fd, *command = arguments
    pulse = Pulse(int(pulse_fd) if pulse_fd else None)
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    lifeline = os.dup(0)
    os.set_inheritable(lifeline, False)
    report = os.dup(1)
    try:
        with open(os.devnull, "rb") as nothing:
            child = subprocess.Popen(
                command, stdin=nothing, stdout=2, stderr=2,
                preexec_fn=lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGKILL),  # noqa: PLW1509 - no thread is there
            )  # fmt: skip
    except OSError as error:
        _say(report, error=f"cannot start {command[0]!r}: {error.strerror}")
        return 1
    _say(report, pid=child.pid)
    files = MadeFiles()
    status = _wait(child.pid, lifeline, pulse, files)
    if status is not None:
        _say(report, exit=os.waitstatus_to_exitcode(status))
    end_all()
    files.remove()
    pulse.beat()
    return 0


class Pulse:
    """The file that says when something of the command last ran.

    Args:
        fd: its descriptor; ``None``: nobody asks.
    """

    def __init__(self, fd: int | None) -> None:
        self._fd = fd
        self._last_s = -_BEAT_S

    def beat_in_time(self) -> None:
        """Set the file's time, unless that was done a moment ago."""
        if time.monotonic() - self._last_s >= _BEAT_S:
            self.beat()

    def beat(self) -> None:
        """Set the file's time."""
        self._last_s = time.monotonic()
        if self._fd is not None:
            with contextlib.suppress(OSError):
                os.utime(self._fd)


class MadeFiles:
    """torch's files in shared memory that processes of the command have made, and that exist.

    torch removes the name of each within microseconds, but for that of a file for which there was no room. Whoever made
    that may have ended by itself before the command does.
    """

    def __init__(self, folder: str = _SHM) -> None:
        self._folder, self._began_s = folder, time.time()
        self._ours, self._others = set[str](), set[str]()

    def look(self) -> None:
        """Note new files, while it is known whose their makers are."""
        names = set(_list_torch_files(self._folder))
        self._ours &= names
        self._others &= names
        for name in names - self._ours - self._others:
            (self._ours if _is_descendant(_read_maker(name)) else self._others).add(name)

    def remove(self) -> None:
        """Remove those that are left. To be called once nothing of the command runs."""
        for name in self._ours:
            _remove_own(os.path.join(self._folder, name), self._began_s)


def _say(fd: int, **fields: object) -> None:
    with contextlib.suppress(OSError):
        os.write(fd, json.dumps(fields).encode() + b"\n")


def _wait(pid: int, lifeline: int, pulse: Pulse, files: MadeFiles) -> int | None:
    """The command's status; ``None``: pipetune has ended or wants the end."""
    while True:
        pulse.beat_in_time()
        files.look()
        with contextlib.suppress(ChildProcessError):
            while (reaped := os.waitpid(-1, os.WNOHANG))[0]:
                if reaped[0] == pid:
                    return reaped[1]
        if select.select([lifeline], [], [], _CHECK_S)[0] and not os.read(lifeline, 1):
            return None


def end_all() -> None:
    """Kill all descendants, until there is none; the trackers of their shared memory come last, and end by themselves.

    A tracker of Python's ``multiprocessing`` removes the semaphores of a process that is gone from /dev/shm, as soon as
    all that have used them are. torch's files there are named after the process that made them.
    """
    killed = _kill(lambda pid: not _is_tracker(pid), time.monotonic() + _END_S)
    deadline = time.monotonic() + _TRACKER_S
    while descendants(os.getpid()) and time.monotonic() < deadline:
        _reap()
        time.sleep(0.01)
    _kill(lambda pid: True, time.monotonic() + _END_S)
    _remove_files_of(killed)


def _kill(is_meant: Callable[[int], bool], deadline_s: float) -> set[int]:
    """Kill those descendants that are meant, until there is none; returns all that were."""
    killed = set[int]()
    while (found := [pid for pid in descendants(os.getpid()) if is_meant(pid)]) and time.monotonic() < deadline_s:
        killed.update(found)
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        _reap()
        time.sleep(0.01)
    return killed


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _is_tracker(pid: int) -> bool:
    """Whether a process is the resource tracker of Python's ``multiprocessing``."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return _TRACKER in file.read()
    except OSError:
        return False


def _remove_files_of(pids: set[int]) -> None:
    """Remove this user's files that torch has made in shared memory for processes that were killed."""
    for name in _list_torch_files(_SHM):
        if _read_maker(name) in pids:
            _remove_own(os.path.join(_SHM, name), 0.0)


def _list_torch_files(folder: str) -> list[str]:
    """Names such as ``torch_4711_1804289383_0``, of which the first number is the PID of the file's maker."""
    with contextlib.suppress(OSError):
        return [name for name in os.listdir(folder) if name.startswith("torch_") and name.split("_")[1].isdecimal()]
    return []


def _read_maker(name: str) -> int:
    return int(name.split("_")[1])


def _remove_own(path: str, since_s: float) -> None:
    """Remove a file if it is this user's and no older than a time (s since the epoch)."""
    with contextlib.suppress(OSError):
        status = os.lstat(path)
        if status.st_uid == os.geteuid() and status.st_mtime >= since_s - _CLOCK_LAG_S:
            os.unlink(path)


def _is_descendant(pid: int) -> bool:
    """Whether a process that runs is one of the command's."""
    while pid > 1:
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                pid = int(file.read().rpartition(b")")[2].split()[1])
        except OSError:
            return False
        if pid == os.getpid():
            return True
    return False


def descendants(pid: int) -> list[int]:
    """PIDs of the children of a process, and of theirs."""
    if not os.path.exists(_CHILDREN):
        return _descendants_in(pid, _children_of_all())
    found = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as file:
                children = [int(word) for word in file.read().split()]
        except OSError:
            continue
        for child in children:
            found += [child, *descendants(child)]
    return found


def _children_of_all() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError, IndexError), open(f"/proc/{name}/stat", "rb") as file:
                # Behind the name, which may have any character in it, come its state and its parent.
                parent = int(file.read().rpartition(b")")[2].split()[1])
                found.setdefault(parent, []).append(int(name))
    return found


def _descendants_in(pid: int, children: dict[int, list[int]]) -> list[int]:
    # Read one after the other, they may show a number that was given anew meanwhile: none is taken twice.
    found: dict[int, None] = {}
    waiting = [pid]
    while waiting:
        new = [child for child in children.get(waiting.pop(), ()) if child not in found and child != pid]
        found.update(dict.fromkeys(new))
        waiting += new
    return list(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
