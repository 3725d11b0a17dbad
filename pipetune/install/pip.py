"""Runs pip in a process of its own that does not outlive us, and finds the cause in what it printed."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence

#: What is run: pip, which ends itself and all that it started when its standard input does, and so when we end, by
#: whatever signal. -P keeps the folder we are in off its path.
_PIP = """
import os, runpy, signal, threading
threading.Thread(target=lambda: (os.read(0, 1), os.killpg(0, signal.SIGKILL)), daemon=True).start()
runpy.run_module("pip", run_name="__main__", alter_sys=True)
"""
#: The lines of pip's output that name a cause, the surest first. The last lines only say that it failed.
_BUILD_CAUSES = r"\berror: (?!subprocess-exited|metadata-gen)|cannot find -l|could not be found for|No space left"
_INDEX_CAUSES = r"connection broken by|Could not find a version"
_MESSAGE_LIMIT = 300


def run_pip(arguments: Sequence[str], environment: Mapping[str, str]) -> tuple[int, str]:
    """Exit status and output of pip in a process group of its own, which is ended with everything in it.

    Raises:
        KeyboardInterrupt: asked to stop; none of it runs any more.
    """
    with contextlib.ExitStack() as ends:
        watched, held = os.pipe()
        ends.callback(os.close, held)
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", _PIP, *arguments], stdin=watched, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, env=dict(environment), start_new_session=True, text=True, errors="replace",
            )  # fmt: skip
        finally:
            os.close(watched)
        try:
            output, _ = process.communicate()
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return process.returncode, output


def cause_of(output: str) -> str:
    """The line of pip's output that names the cause; its last one where none does."""
    lines = [" ".join(line.split()) for line in output.splitlines() if line.strip()]
    for cause in (_BUILD_CAUSES, _INDEX_CAUSES):
        for line in lines:
            if (found := re.search(cause, line)) is not None:
                return line[found.start() if cause is _INDEX_CAUSES else 0 :][:_MESSAGE_LIMIT]
    return lines[-1][:_MESSAGE_LIMIT] if lines else "it said nothing"


def unreachable(output: str) -> bool:
    """Whether pip found no package index, or not the package on it."""
    return re.search(_INDEX_CAUSES, output) is not None
