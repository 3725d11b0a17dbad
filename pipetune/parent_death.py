"""A process that must not outlive the one that started it."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent_pid: int | None = None) -> None:
    """Ask the kernel for SIGKILL when the parent dies (Linux ``prctl(2)``), however it dies.

    Args:
        parent_pid: who the parent should be. If it died before the call took effect this process ends at once.
    """
    expected = os.getppid() if parent_pid is None else parent_pid
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != expected:
        os._exit(1)
