"""A process that must not outlive the one that started it."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import threading
import time

_PR_SET_PDEATHSIG = 1
#: How often a worker that may be slow to end looks for its parent, and how long it may then take (s).
_LOOK_S = 1.0


def die_with_parent(parent_pid: int) -> None:
    """Ask the kernel for SIGKILL when the parent dies (Linux ``prctl(2)``), however it dies.

    Args:
        parent_pid: who the parent is, as the parent itself knows it: one that died before this call has already been
            replaced by whoever adopts orphans. Then this process ends at once.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os._exit(1)


def end_with_parent(parent_pid: int) -> None:
    """The same for a process that must not be ended in the middle of a call: between two steps of Python instead.

    torch needs milliseconds to give a batch its shared memory, whose name in /dev/shm a SIGKILL in between would leave
    behind. A process that does not come to its next step, because a library hangs, is killed after two seconds by a
    thread of its own.
    """
    signal.signal(signal.SIGUSR1, lambda number, frame: os._exit(1))
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGUSR1)
    threading.Thread(target=_kill_after, args=(parent_pid,), name="parent-watch", daemon=True).start()
    if os.getppid() != parent_pid:
        os._exit(1)


def end_after(pid: int) -> None:
    """The same for a process that was started by a server and is to end when somebody else dies.

    Args:
        pid: of that process, which runs now.
    """
    signal.signal(signal.SIGUSR1, lambda number, frame: os._exit(1))
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        os._exit(1)
    threading.Thread(target=_end_when_readable, args=(fd,), name="main-watch", daemon=True).start()


def _end_when_readable(fd: int) -> None:
    select.select([fd], [], [])  # pidfd_open(2): readable when the process has ended
    os.kill(os.getpid(), signal.SIGUSR1)
    time.sleep(_LOOK_S)
    os.kill(os.getpid(), signal.SIGKILL)


def _kill_after(parent_pid: int) -> None:
    while os.getppid() == parent_pid:
        time.sleep(_LOOK_S)
    time.sleep(_LOOK_S)
    os.kill(os.getpid(), signal.SIGKILL)
