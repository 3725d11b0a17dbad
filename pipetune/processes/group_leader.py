"""A child that leads a process group, which is ended by the child's number, also after the child has ended.

A child that is waited for as usual is reaped, and from then on the kernel may give its number to another process and to
another group, which a signal to the group would end. So its end is waited for without reaping it, until the group has
been ended.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from typing import IO, Any

#: Longest time between two looks whether it has ended (s).
_CHECK_S = 0.05


class GroupLeader:
    """The child: a ``subprocess.Popen`` whose end is seen without reaping it.

    Args:
        process: has been started with ``start_new_session=True``; it is not to be asked or waited for anywhere else.
    """

    def __init__(self, process: subprocess.Popen[Any]) -> None:
        self.pid = process.pid
        self.stdin: IO[Any] | None = process.stdin
        self.stdout: IO[Any] | None = process.stdout
        self._process = process

    def poll(self) -> int | None:
        """Its return code, as ``Popen`` has it; ``None``: it runs."""
        if self._process.returncode is not None:
            return self._process.returncode
        try:
            found = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:  # reaped by somebody else: another thread, or the kernel where SIGCHLD is ignored
            return self._process.poll()
        if found is None:
            return None
        return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status

    def wait(self, timeout: float | None = None) -> int:
        """Its return code, once it has ended; ``timeout`` in seconds.

        Raises:
            subprocess.TimeoutExpired: it has not.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        pause_s = 0.0005
        while (code := self.poll()) is None:
            if deadline is not None:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
                pause_s = min(pause_s, left)
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _CHECK_S)
        return code

    def end_group(self) -> None:
        """SIGKILL to all in its process group; to nobody once it has been reaped."""
        self.poll()
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    def reap(self) -> None:
        """Let go of its number, if it has ended; to be called after :meth:`end_group`."""
        self._process.poll()
