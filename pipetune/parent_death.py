"""A process that must not outlive the one that started it."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent_pid: int) -> None:
    """Ask the kernel for SIGKILL when the parent dies (Linux ``prctl(2)``), however it dies.

    Args:
        parent_pid: who the parent is, as the parent itself knows it: one that died before this call has already been
            replaced by whoever adopts orphans. Then this process ends at once.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os._exit(1)
