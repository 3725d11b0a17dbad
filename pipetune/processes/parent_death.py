"""A process that must not outlive the one that started it.

Why not psutil: it has no prctl(2), and importing it would add 10 ms to the start of every loader worker.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

_PR_SET_PDEATHSIG = 1
#: Time between two checks of the parent, and time that a process has to end before it is killed (s).
_CHECK_S = 1.0


def die_with_parent(parent_pid: int) -> None:
    """Ask the kernel for SIGKILL when the parent dies (Linux ``prctl(2)``), however it dies.

    Args:
        parent_pid: the parent's own PID. If the parent died before this call, another process has adopted this one,
            which then ends at once.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os._exit(1)


def end_with_parent(parent_pid: int) -> None:
    """End this process when the parent dies, but between two steps of Python and not in the middle of a call.

    torch needs milliseconds to give a batch its shared memory, and a SIGKILL in between would leave the file in
    /dev/shm. A process that does not reach its next step, because a library hangs, is killed after two seconds by a
    thread of its own.

    While the parent lives SIGUSR1 does nothing here, not even what a script's own handler would do: schedulers send it
    to all processes of a job, and the kernel sends it when only the thread ends that has started this process.

    Args:
        parent_pid: see :func:`die_with_parent`.
    """
    _at_sigusr1_end_if(lambda: os.getppid() != parent_pid)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGUSR1)
    threading.Thread(target=_kill_after, args=(parent_pid,), name="parent-watch", daemon=True).start()
    if os.getppid() != parent_pid:
        os._exit(1)


def end_after(pid: int) -> None:
    """End this process, as :func:`end_with_parent` does, when another process than its parent ends.

    Args:
        pid: the other process, e.g. the one that asked a fork server to start this one.
    """
    ended = threading.Event()
    _at_sigusr1_end_if(ended.is_set)
    wait = _wait_for_end_of(pid)
    if wait is None:
        os._exit(1)
    threading.Thread(target=_end_after, args=(wait, ended), name="main-watch", daemon=True).start()


def _at_sigusr1_end_if(is_over: Callable[[], bool]) -> None:
    def end(number: int, frame: object) -> None:
        if is_over():
            os._exit(1)

    signal.signal(signal.SIGUSR1, end)
    # A stray one must not make a library's read or write fail with EINTR.
    signal.siginterrupt(signal.SIGUSR1, False)


def _wait_for_end_of(pid: int) -> Callable[[], object] | None:
    """A function that returns when the process has ended; ``None``: it has already."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    except (OSError, AttributeError):  # a container's rules refuse it; Linux before 5.3, or a Python built on such
        began = _began(pid)
        return None if began is None else lambda: _poll_until_ended(pid, began)
    return lambda: select.select([fd], [], [])  # pidfd_open(2): readable when the process has ended


def _poll_until_ended(pid: int, began: str) -> None:
    while (now := _began(pid)) is not None and (now == began or not now or not began):
        time.sleep(_CHECK_S)


def _began(pid: int) -> str | None:
    """When a process began, as the kernel writes it: a later one with its PID began at another time.

    Returns:
        ``None``: it has ended; empty: it runs, and /proc does not say when it began.
    """
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if state in "ZX" else fields[18]  # proc(5): the state is field 3, the start time field 22
    except OSError:
        pass
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:  # another user's
        pass
    return ""


def _end_after(wait: Callable[[], object], ended: threading.Event) -> None:
    wait()
    ended.set()
    os.kill(os.getpid(), signal.SIGUSR1)
    time.sleep(_CHECK_S)
    os.kill(os.getpid(), signal.SIGKILL)


def _kill_after(parent_pid: int) -> None:
    while os.getppid() == parent_pid:
        time.sleep(_CHECK_S)
    time.sleep(_CHECK_S)
    os.kill(os.getpid(), signal.SIGKILL)
