"""Children of the harness as forks of a process that has imported torch: each saves the three seconds of that.

For programs that :func:`tests.fake_cuda.run` runs: ``forking.install()`` before anything is measured. CUDA is not yet
initialised in the parent, and the stand-in reads its knobs when it is used first, so each child has its own. What a
real child does before its first line of Python (an allocator, ``-P``) is left out.
"""

from __future__ import annotations

import contextlib
import io
import os
import runpy
import signal
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import IO, Any


def install() -> None:
    """From now on the harness forks."""
    import torch
    import torchvision

    import pipetune.child.time_steps
    import pipetune.loaders.open_loader
    from pipetune.measure import session

    assert not torch.cuda.is_initialized()
    assert torchvision
    assert pipetune
    session.subprocess = SimpleNamespace(  # type: ignore[assignment]
        Popen=Forked, PIPE=subprocess.PIPE, STDOUT=subprocess.STDOUT, TimeoutExpired=subprocess.TimeoutExpired
    )


class Forked:
    """What of ``subprocess.Popen`` the harness uses."""

    def __init__(
        self, command: list[str], *, env: dict[str, str], pass_fds: tuple[int, ...], **_: Any
    ) -> None:  # fmt: skip
        reads, stdin = os.pipe()
        stdout, writes = os.pipe()
        self.returncode: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            _run(command, env, (reads, writes), pass_fds)
        os.close(reads)
        os.close(writes)
        self.stdin: IO[bytes] = os.fdopen(stdin, "wb")
        self.stdout: IO[bytes] = os.fdopen(stdout, "rb")

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, timeout: float) -> int:
        deadline = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("fork", timeout)
            time.sleep(0.01)
        assert self.returncode is not None
        return self.returncode


def _run(command: list[str], env: dict[str, str], pipes: tuple[int, int], pass_fds: tuple[int, ...]) -> None:
    """The child: never returns."""
    try:
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        os.dup2(pipes[0], 0)
        os.dup2(pipes[1], 1)
        os.dup2(pipes[1], 2)
        for name in os.listdir("/proc/self/fd"):
            if int(name) > 2 and int(name) not in pass_fds:
                with contextlib.suppress(OSError):
                    os.close(int(name))
        sys.stdin = io.TextIOWrapper(os.fdopen(0, "rb"))
        sys.stdout, sys.stderr = (io.TextIOWrapper(os.fdopen(fd, "wb"), line_buffering=True) for fd in (1, 2))
        os.environ.clear()
        os.environ.update(env)
        sys.argv = ["-c", command[-3]]  # then come the module and the package's folder, which are known already
        runpy.run_module("pipetune.child.program", run_name="__main__")
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(3)
