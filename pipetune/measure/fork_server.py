"""Fork servers: processes that have imported torch, of which each candidate gets a fork instead of a new interpreter.

Importing torch takes longer than measuring many a candidate does, and it is the same for all of them. A fork has its
own memory, threads, environment, signal handlers and modules, so a candidate that leaks, hangs or changes any of them
takes only itself, as one in a new process does. What the dynamic loader or the allocator reads when a program starts,
and side libraries that share an import name (Pillow-SIMD), need a server of their own.

Why not one process that measures them one after the other: see benchmarks/measuring/bench_process.py.
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
from collections import OrderedDict
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
#: Longest time for a server to import everything and fork (s); then the candidate gets a new process.
_FORK_LIMIT_S = 60.0
_CHECK_S = 0.2
#: Servers that are kept at most: each holds what it has imported, and a sweep mostly needs one or two kinds.
_MOST_SERVERS = 2

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


#: What all candidates import; and what an accelerator of the kind does that trains for real.
_MODULES = ("torch", "pipetune.child.program", "pipetune.loaders.open_loader", "pipetune.child.time_steps", "psutil")
_TRAINING = "pipetune.accelerator.train_step"


def modules_for(accelerator_kind: str) -> tuple[str, ...]:
    """What a server imports, for an accelerator of :attr:`pipetune.records.sweep.AcceleratorSpec.kind`.

    None of it may start a thread, or ask a device anything, when it is imported.
    """
    return _MODULES if accelerator_kind == "emulated" else (*_MODULES, _TRAINING)


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
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._text = b""
        self._has_child = False
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
        """Its process."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether it can fork no more; also where it still waits for a child that does not end."""
        return self._process.poll() is not None or (self._has_child and self.returncode(0.0) is None)

    def fork(self, wire_fd: int, workers_fd: int, stop: Callable[[], bool]) -> ForkedChild:
        """A child that has these ends of two pipes.

        Args:
            stop: whether to wait no longer.

        Raises:
            ServerEndedError: there will be no child.
            OSError: the system refuses.
        """
        stdin_read, stdin = os.pipe()
        stdout, stdout_write = os.pipe()
        try:
            socket.send_fds(self._control, [REQUEST], [stdin_read, stdout_write, wire_fd, workers_fd])
            answer = self._answer(_FORK_LIMIT_S, stop)
            if "refused" in answer:
                raise OSError(*answer["refused"])
        except BaseException as error:
            os.close(stdin)
            os.close(stdout)
            if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
                raise
            self.close()
            raise ServerEndedError from error
        finally:
            os.close(stdin_read)
            os.close(stdout_write)
        self._has_child = True
        return ForkedChild(answer["pid"], stdin, stdout, self)

    def returncode(self, limit_s: float) -> int | None:
        """Of the newest child; ``None``: it has not ended after this long."""
        try:
            answer = self._answer(limit_s, lambda: False)
        except TimeoutError:
            return None
        except ServerEndedError:
            return -signal.SIGKILL  # the kernel has ended the child with it
        self._has_child = False
        returncode: int = answer["returncode"]
        return returncode

    def close(self) -> None:
        """End it, and with it the child that it may have."""
        self._control.close()
        self._process.kill()
        self._process.wait()

    def _answer(self, limit_s: float, stop: Callable[[], bool]) -> dict[str, Any]:
        """Its next message.

        Raises:
            ServerEndedError: it has ended, or ``stop`` said so.
            TimeoutError: there was none.
        """
        deadline = time.monotonic() + limit_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._control, selectors.EVENT_READ)
            while b"\n" not in self._text:
                if stop():
                    raise ServerEndedError
                left = deadline - time.monotonic()
                if not selector.select(max(0.0, min(left, _CHECK_S))):
                    if left <= 0:
                        raise TimeoutError
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


class ForkServers:
    """The servers of a sweep, each started when its first candidate comes."""

    def __init__(self, modules: tuple[str, ...], program: str = PROGRAM) -> None:
        """Servers that import ``modules`` and run ``program``, which is another module in a benchmark only."""
        self._modules = modules
        self._program = program
        self._servers: OrderedDict[tuple[Any, ...], ForkServer] = OrderedDict()

    def fork(
        self, variables: Mapping[str, str], side: str | None, wire_fd: int, workers_fd: int, stop: Callable[[], bool]
    ) -> ForkedChild | None:
        """A child; ``None``: there can be none, so the candidate needs a new process.

        Raises:
            OSError: the system refuses.
        """
        key = (*sorted(variables.items()), side)
        try:
            return self._server(key, variables, side).fork(wire_fd, workers_fd, stop)
        except ServerEndedError:
            self._servers.pop(key, None)
            return None

    def start(self, variables: Mapping[str, str], side: str | None = None) -> None:
        """Start a server now, so that it imports while the caller does something else.

        Raises:
            OSError: the system refuses.
        """
        self._server((*sorted(variables.items()), side), variables, side)

    def close(self) -> None:
        """End them all."""
        while self._servers:
            self._servers.popitem()[1].close()

    def _server(self, key: tuple[Any, ...], variables: Mapping[str, str], side: str | None) -> ForkServer:
        if key in self._servers and self._servers[key].ended:
            self._servers.pop(key).close()
        if key not in self._servers:
            self._servers[key] = ForkServer(variables, side, self._modules, self._program)
        self._servers.move_to_end(key)
        while len(self._servers) > _MOST_SERVERS:
            self._servers.popitem(last=False)[1].close()
        return self._servers[key]
