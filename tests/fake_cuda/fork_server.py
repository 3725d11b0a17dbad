"""A process that has imported torch on the stand-in and runs each program in a fork: saves three seconds of CPU each.

CUDA is not initialised before the fork, and the stand-in reads its knobs when it is used first, so each program has its
own. What the dynamic loader reads when a program starts (``LD_LIBRARY_PATH``, so NVML's stand-in) is the server's.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from typing import IO

import psutil

#: What programs import, and what takes long to import.
_IMPORTED = (
    "torch", "torchvision", "pipetune.accelerator.torch_accelerator", "pipetune.child.time_steps",
    "pipetune.loaders.open_loader", "pipetune.measure.harness", "tests.photo_set",
)  # fmt: skip


class ForkServer:
    """Its client's end."""

    def __init__(self, env: dict[str, str], cwd: Path) -> None:
        # It is nobody's child: other tests of this process check that they leave none.
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__], env=env, cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self._pid = int(self._process.stdout.readline())
        self._process.wait()
        atexit.register(self.close)

    def run(self, argv: list[str], env: dict[str, str], folder: Path, timeout_s: float) -> tuple[int, str, str]:
        """Exit code, standard output and standard error of a program.

        Args:
            argv: the program's text and its arguments.
            env: the whole environment.
            folder: for its output.
            timeout_s: after that it is killed, with the server.

        Raises:
            TimeoutError: it did not end.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        files = [str(folder / f"{name}-of-fork") for name in ("stdout", "stderr")]
        self._process.stdin.write(json.dumps([argv, env, files]) + "\n")
        self._process.stdin.flush()
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(timeout_s):
                self.close()
                raise TimeoutError(f"not ended after {timeout_s} s: {Path(files[1]).read_text()}")
        line = self._process.stdout.readline()
        assert line, "the fork server has ended"
        code = int(line)
        stdout, stderr = (Path(file).read_text() for file in files)
        return code, stdout, stderr

    @property
    def alive(self) -> bool:
        return bool(psutil.pid_exists(self._pid))

    def close(self) -> None:
        """End it, and the program that it runs."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGTERM)


def _serve(requests: IO[str]) -> None:
    for line in requests:
        argv, env, files = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _run(argv, env, files)

        def end(*_: object, group: int = pid) -> None:
            os.killpg(group, signal.SIGKILL)
            os._exit(1)

        signal.signal(signal.SIGTERM, end)
        _, status = os.waitpid(pid, 0)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _run(argv: list[str], env: dict[str, str], files: list[str]) -> None:
    """The fork: never returns."""
    code = 1
    try:
        os.setsid()
        for number, path in enumerate((os.devnull, *files)):
            opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            os.dup2(opened, number)
            os.close(opened)
        os.environ.clear()
        os.environ.update(env)
        sys.argv = ["-c", *argv[1:]]
        exec(compile(argv[0], "<string>", "exec"), sys.modules["__main__"].__dict__)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    if os.fork():
        os._exit(0)
    print(os.getpid(), flush=True)
    for module in _IMPORTED:
        __import__(module)
    _serve(sys.stdin)
