"""Stacks of a running Python process through py-spy, without stopping it.

Always ``--nonblocking``: py-spy otherwise pauses the process for each sample, and torch jobs with many threads have
been seen to freeze under it (py-spy issue 872). A dump of a running process can be inconsistent; then it is left out.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any

from pipetune.sampler.stacks.activity import Frame

#: Time limit of a dump (s), which takes some 20 ms.
LIMIT_S = 3.0
#: py-spy reads all threads, at some 0.3 ms of CPU time and 5 kB each: with more, a stack costs more than a watch may.
_MAX_THREADS = 500
_INSTALL = "pip install 'pipetune[stacks]'"
#: py-spy's words for "the kernel does not let me", and for processes without a Python.
_DENIED = ("permission denied", "operation not permitted", "eperm")
_NO_PYTHON = ("failed to find python version", "no python", "failed to find a python interpreter")


@dataclass(frozen=True, slots=True, kw_only=True)
class StackDump:
    """One reading of the stacks of one process."""

    threads: dict[int, tuple[Frame, ...]]
    """Operating system's thread number → frames, innermost first."""
    active: dict[int, bool] = field(default_factory=dict)
    """Thread's number → it was on a core; only threads of which that is known."""
    in_python: dict[int, bool] = field(default_factory=dict)
    """Thread's number → it held the interpreter's lock (GIL), so it ran no native code that computes without it."""
    problem: str | None = None
    """Why there are none."""
    permanent: bool = False
    """Asking this process again will not help."""


def find_py_spy() -> str | None:
    """The program, beside this Python or on the search path; ``None``: not installed."""
    beside = os.path.join(os.path.dirname(sys.executable), "py-spy")
    return beside if os.access(beside, os.X_OK) else shutil.which("py-spy")


def dump(pid: int, program: str | None = None) -> StackDump:
    """Read once. Never raises: what went wrong is in ``problem``, with what would help."""
    program = program or find_py_spy()
    if program is None:
        return StackDump(threads={}, problem=f"stacks: py-spy is not installed ({_INSTALL})", permanent=True)
    threads = _threads_of(pid)
    if threads > _MAX_THREADS:
        return StackDump(
            threads={}, problem=f"stacks: process {pid} has {threads} threads, too many for py-spy to read"
        )
    command = [program, "dump", "--pid", str(pid), "--nonblocking", "--json"]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_S, check=False, close_fds=True
        )
    except subprocess.TimeoutExpired:
        return StackDump(threads={}, problem=f"stacks: py-spy did not answer within {LIMIT_S:.0f} s")
    except OSError as error:
        return StackDump(threads={}, problem=f"stacks: cannot run {program}: {error.strerror}", permanent=True)
    if done.returncode != 0:
        return _refused(pid, done.stderr.decode("utf-8", "replace"))
    try:
        return parse_dump(done.stdout)
    except (ValueError, KeyError, TypeError):
        return StackDump(threads={}, problem="stacks: py-spy's answer could not be read")


def parse_dump(text: bytes) -> StackDump:
    """py-spy's JSON -> the frames of its threads, and which of them were on a core and held the interpreter's lock.

    Raises:
        ValueError, KeyError, TypeError: another form.
    """
    threads: dict[int, tuple[Frame, ...]] = {}
    active: dict[int, bool] = {}
    in_python: dict[int, bool] = {}
    for thread in json.loads(text):
        # py-spy does not know the numbers of threads of Python 3.10 and older, and in a container they are others than
        # here; the main thread's is the process's.
        number = thread["pid"] if thread["thread_name"] == "MainThread" else thread["os_thread_id"]
        if number is not None and thread["frames"]:
            threads[int(number)] = tuple(_frame(frame) for frame in thread["frames"])
            in_python[int(number)] = bool(thread["owns_gil"])
            # Of threads whose number it does not know, py-spy says that nearly all are active.
            if thread["os_thread_id"] == number:
                active[int(number)] = bool(thread["active"])
    return StackDump(threads=threads, active=active, in_python=in_python)


def _threads_of(pid: int) -> int:
    try:
        return os.stat(f"/proc/{pid}/task").st_nlink - 2  # which is cheaper than to list them
    except OSError:
        return 0


def _frame(frame: dict[str, Any]) -> Frame:
    path = frame["filename"]
    return Frame(frame["name"], frame.get("short_filename") or path, int(frame["line"]), path)


def _refused(pid: int, words: str) -> StackDump:
    said = words.lower()
    if any(part in said for part in _DENIED):
        return StackDump(threads={}, problem=_how_to_allow(), permanent=True)
    if any(part in said for part in _NO_PYTHON):
        # Not permanent: a shell may still become Python (``exec python``, pyenv's wrappers).
        return StackDump(threads={}, problem=f"stacks: process {pid} runs no Python that py-spy knows")
    # For example, the process ended at this moment.
    first = next((line for line in words.splitlines() if line.strip()), "no reason given")
    return StackDump(threads={}, problem=f"stacks: py-spy: {first.strip()}")


def _how_to_allow(path: str = "/proc/sys/kernel/yama/ptrace_scope") -> str:
    try:
        with open(path, encoding="ascii") as file:
            scope = file.read().strip()
    except OSError:
        scope = "0"
    forbids = f"stacks: the kernel forbids it (ptrace_scope {scope})"
    if scope == "1":
        return (
            f"{forbids}; start the job with 'pipetune watch -- …', or allow it: sudo sysctl kernel.yama.ptrace_scope=0"
        )
    if scope == "2":  # what a job allows its watcher (PR_SET_PTRACER) counts in scope 1 only
        return f"{forbids} but to root; allow it: sudo sysctl kernel.yama.ptrace_scope=0"
    if scope == "3":
        return f"{forbids} to everybody until the machine is started anew with another one"
    return "stacks: the system forbids it; a container needs --cap-add SYS_PTRACE, another user's process needs sudo"
