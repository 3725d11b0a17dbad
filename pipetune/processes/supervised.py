"""A command of the user's under :mod:`pipetune.processes.supervise`: started, waited for, ended with all it started."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

_PROGRAM = str(Path(__file__).with_name("supervise.py"))
#: Longest time that the supervisor takes to end everything (s).
_END_S = 15.0


class Supervised:
    """The running command. :meth:`close` ends it.

    Args:
        command: what to start, as a shell would.
        environment: of the command.
        log: takes its standard output and error.
        pulse_fd: descriptor of a file. It stays open until everything has ended, whatever becomes of this process, and
            until then the file's time of change is set every second.

    Raises:
        OSError: the system refuses.
    """

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], log: IO[bytes], pulse_fd: int | None = None
    ) -> None:
        self.pid: int | None = None
        """Of the command, once it runs."""
        self.exit_code: int | None = None
        """Negative: the signal that ended it; ``None``: it runs, or was ended by us."""
        self.error: str | None = None
        """Why it could not be started."""
        self._buffer = b""
        # -S and -E: the supervisor needs nothing of the environment, and the hook must not enter it.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-E", "-S", _PROGRAM, "" if pulse_fd is None else str(pulse_fd), *command],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=dict(environment), start_new_session=True,
            pass_fds=() if pulse_fd is None else (pulse_fd,),
        )  # fmt: skip
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)

    def fileno(self) -> int:
        """Readable when there is news: then call :meth:`read`."""
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def read(self) -> bool:
        """Take in what the supervisor reports; ``False``: it has ended."""
        try:
            data = os.read(self.fileno(), 1 << 16)
        except BlockingIOError:
            return True
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            news = json.loads(line)
            self.pid = news.get("pid", self.pid)
            self.exit_code = news.get("exit", self.exit_code)
            self.error = news.get("error", self.error)
        return bool(data)

    def close(self) -> None:
        """End the command and all that it has started. May be called again."""
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_S)
        if self._process.stdout is not None and not self._process.stdout.closed:
            with contextlib.suppress(ValueError, OSError):
                self.read()
            self._process.stdout.close()
