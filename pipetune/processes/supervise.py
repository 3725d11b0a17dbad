"""The program that starts a command of the user's and ends everything that it has started, whatever happens.

It adopts orphans (``PR_SET_CHILD_SUBREAPER``), so a daemonised or re-parented process stays below it, in whatever
process group or session it may be. It ends all of them when the command has ended, and when its standard input closes:
the kernel closes that when pipetune dies, also by SIGKILL.

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

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_CHECK_S = 0.05
#: Lists what one thread has forked; kernels without CONFIG_PROC_CHILDREN have no such file.
_CHILDREN = "/proc/thread-self/children"
#: Longest time for everything to end after SIGKILL (s).
_END_S = 10.0


def main(command: list[str]) -> int:
    """Run the command; returns 0 once nothing of it is left."""
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
    status = _wait(child.pid, lifeline)
    if status is not None:
        _say(report, exit=os.waitstatus_to_exitcode(status))
    end_all()
    return 0


def _say(fd: int, **fields: object) -> None:
    with contextlib.suppress(OSError):
        os.write(fd, json.dumps(fields).encode() + b"\n")


def _wait(pid: int, lifeline: int) -> int | None:
    """The command's status; ``None``: pipetune has ended or wants the end."""
    while True:
        with contextlib.suppress(ChildProcessError):
            while (reaped := os.waitpid(-1, os.WNOHANG))[0]:
                if reaped[0] == pid:
                    return reaped[1]
        if select.select([lifeline], [], [], _CHECK_S)[0] and not os.read(lifeline, 1):
            return None


def end_all() -> None:
    """Kill all descendants, until there is none."""
    deadline = time.monotonic() + _END_S
    while (found := descendants(os.getpid())) and time.monotonic() < deadline:
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.01)


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
