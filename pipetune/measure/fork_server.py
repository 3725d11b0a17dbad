"""A fork server: a process that has imported torch, of which candidates get a fork instead of a new interpreter.

A fork has its own memory, threads, environment, signal handlers and modules, so a candidate that leaks, hangs or
changes any of them takes only itself, as one in a new process does. The server's own program is
:mod:`pipetune.child.fork_server`; those of a sweep are in :mod:`pipetune.measure.fork_servers`.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from pipetune.measure import wire
from pipetune.processes import shm_files

#: What a server runs.
PROGRAM = "pipetune.child.fork_server"
#: What the parent sends for each child, along with these file descriptors.
REQUEST = b"fork"
DESCRIPTORS = ("stdin", "stdout", "wire", "workers")
#: Longest time for a server to import everything, or to fork (s); then the candidate gets a new process.
_FORK_LIMIT_S = 60.0
_CHECK_S = 0.2
#: Longest time for a server to end (s), and between two looks whether its child has ended with it.
_END_LIMIT_S, _END_CHECK_S = 10.0, 0.005

#: -P keeps the working directory off its import path: a training repository may have a ``statistics.py``. The folder of
#: this package comes last, for a checkout that is not installed.
RUN_MODULE = (
    "import runpy, sys; sys.path.append(sys.argv.pop()); name = sys.argv.pop(); "
    "runpy.run_module(name, run_name='__main__')"
)
PACKAGE_FOLDER = str(Path(__file__).resolve().parents[2])


def fd_variables(wire_fd: int, workers_fd: int) -> dict[str, str]:
    """Environment variables that tell a child its ends of the two pipes."""
    return {wire.FD_VARIABLE: str(wire_fd), shm_files.FD_VARIABLE: str(workers_fd)}


class ServerEndedError(Exception):
    """The server could not start, or has ended: the candidate needs a new process."""


class ForkServer:
    """One server, from its start to its end."""

    def __init__(
        self, variables: Mapping[str, str], side: str | None, modules: tuple[str, ...], program: str = PROGRAM
    ) -> None:
        """Start it; it imports while the caller goes on.

        Args:
            variables: of its environment, and so of its children's, besides this process's own.
            side: folder that comes first on its import path.
            modules: what it imports.
            program: the module that it runs.

        Raises:
            OSError: the system refuses.
        """
        self.has_forked = False
        self._ready = False
        self._text = b""
        self._child: int | None = None
        self._newest: int | None = None
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-c", RUN_MODULE, str(os.getpid()), str(theirs.fileno()), side or "",
                     *modules, program, PACKAGE_FOLDER],
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),), env={**os.environ, **variables}, start_new_session=True,
                )  # fmt: skip
            except OSError:
                self._control.close()
                raise

    @property
    def pid(self) -> int:
        """Its own."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether it can fork no more; also where it still waits for a child that does not end."""
        return self._process.poll() is not None or (self._child is not None and self.returncode(0.0) is None)

    def holds(self, pid: int) -> bool:
        """Whether a child's number is certainly no other process's: the server has not reaped it."""
        return pid == self._newest and self._control.fileno() >= 0 and self._process.poll() is None

    def wait_ready(self, stop: Callable[[], bool]) -> None:
        """Wait until it has imported everything.

        Args:
            stop: whether to wait no longer.

        Raises:
            ServerEndedError: there will be no child.
        """
        if not self._ready:
            self._answer_in_time(stop)
            self._ready = True

    def fork(self, wire_fd: int, workers_fd: int, stop: Callable[[], bool]) -> ForkedChild:
        """A child that has these ends of two pipes.

        Args:
            stop: whether to wait no longer.

        Raises:
            ServerEndedError: there will be no child.
            OSError: the system refuses.
        """
        self.wait_ready(stop)
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            stdin_read, stdin = os.pipe()
            theirs.callback(os.close, stdin_read)
            ours.callback(os.close, stdin)
            stdout, stdout_write = os.pipe()
            theirs.callback(os.close, stdout_write)
            ours.callback(os.close, stdout)
            try:
                socket.send_fds(self._control, [REQUEST], [stdin_read, stdout_write, wire_fd, workers_fd])
            except ConnectionError as error:
                raise ServerEndedError from error
            answer = self._answer_in_time(stop)
            if "refused" in answer:
                raise OSError(*answer["refused"])
            ours.pop_all()
        self.has_forked = True
        self._child = self._newest = answer["pid"]
        return ForkedChild(answer["pid"], stdin, stdout, self)

    def returncode(self, limit_s: float) -> int | None:
        """Of the newest child; ``None``: it has not ended after this long."""
        try:
            answer = self._answer(limit_s, lambda: False)
        except ServerEndedError:  # the kernel ends the child with it
            return -signal.SIGKILL if self._child is None or _has_ended(self._child, limit_s) else None
        if answer is None:
            return None
        self._child = None
        returncode: int = answer["returncode"]
        return returncode

    def close(self) -> None:
        """End it, and with it the child that it may have."""
        self._control.close()
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):  # in uninterruptible sleep it ignores SIGKILL
            self._process.wait(_END_LIMIT_S)

    def _answer_in_time(self, stop: Callable[[], bool]) -> dict[str, Any]:
        answer = self._answer(_FORK_LIMIT_S, stop)
        if answer is None:
            raise ServerEndedError
        return answer

    def _answer(self, limit_s: float, stop: Callable[[], bool]) -> dict[str, Any] | None:
        """Its next message; ``None``: there was none for this long.

        Raises:
            ServerEndedError: it has ended, or ``stop`` said so.
        """
        if self._control.fileno() < 0:
            raise ServerEndedError
        deadline = time.monotonic() + limit_s
        with selectors.PollSelector() as selector:  # takes no file descriptor
            selector.register(self._control, selectors.EVENT_READ)
            while b"\n" not in self._text:
                if stop():
                    raise ServerEndedError
                left = deadline - time.monotonic()
                if not selector.select(max(0.0, min(left, _CHECK_S))):
                    if left <= 0:
                        return None
                    continue
                data = b""
                with contextlib.suppress(ConnectionResetError):
                    data = self._control.recv(1 << 12)
                if not data:
                    raise ServerEndedError
                self._text += data
        line, self._text = self._text.split(b"\n", 1)
        answer: dict[str, Any] = json.loads(line)
        return answer


class ForkedChild:
    """What a measurement uses of a ``subprocess.Popen``, of a child that is the server's."""

    def __init__(self, pid: int, stdin: int, stdout: int, server: ForkServer) -> None:
        self.pid = pid
        self.stdin: IO[bytes] = os.fdopen(stdin, "wb")
        self.stdout: IO[bytes] = os.fdopen(stdout, "rb", buffering=0)
        self._server = server
        self._began = _start_time(pid)
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Its exit status; ``None``: it runs."""
        if self.returncode is None:
            self.returncode = self._server.returncode(0.0)
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Its exit status, once it has ended.

        Raises:
            subprocess.TimeoutExpired: it has not.
        """
        if self.returncode is None:
            self.returncode = self._server.returncode(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(f"fork {self.pid}", timeout)
        return self.returncode

    def end_group(self) -> None:
        """SIGKILL to all in its process group, unless that may be another one by now."""
        # Without the server, init reaps it. Its number is then free, unless somebody in its group is left.
        if self._server.holds(self.pid) or _start_time(self.pid) in (None, self._began):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    def reap(self) -> None:
        """Its server does that."""


def _has_ended(pid: int, limit_s: float) -> bool:
    """Whether a process has ended, or does after so long at most; one that waits to be reaped has."""
    deadline = time.monotonic() + limit_s
    while True:
        try:
            state = _fields(pid)[0]
        except OSError:
            return True
        if state in "ZX":
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(_END_CHECK_S)


def _start_time(pid: int) -> str | None:
    """When a process began, in the kernel's words; ``None``: there is none, or no file can be opened."""
    try:
        return _fields(pid)[19]
    except OSError:
        return None


def _fields(pid: int) -> list[str]:
    """Those of ``/proc/PID/stat`` after the name: the state comes first."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
