"""Runs pip in a process that ends with this one, and finds the cause of a failure in its output."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence

from pipetune.processes.group_leader import GroupLeader

#: Program that runs pip and kills its process group when standard input closes, which it does when this process ends
#: by whatever signal. -P keeps the working directory off its path.
_PIP = """
import os, runpy, signal, threading
threading.Thread(target=lambda: (os.read(0, 1), os.killpg(0, signal.SIGKILL)), daemon=True).start()
runpy.run_module("pip", run_name="__main__", alter_sys=True)
"""
#: Patterns of lines that name the cause, the most certain first. The last lines of pip only say that it failed.
_BUILD_CAUSES = r"\berror: (?!subprocess-exited|metadata-gen)|cannot find -l|could not be found for|No space left"
_HASH_CAUSES = r"DO NOT MATCH THE HASHES|requirements to be pinned|Hashes are required"
_INDEX_CAUSES = r"connection broken by|Could not find a version"
_MESSAGE_LIMIT = 300


def run_pip(arguments: Sequence[str], environment: Mapping[str, str]) -> tuple[int, str]:
    """Run pip in a process group of its own, which is killed at the end with everything in it.

    Returns:
        The exit status, and the output.

    Raises:
        KeyboardInterrupt: asked to stop; the whole group has been killed.
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
        leader = GroupLeader(process)
        assert process.stdout is not None
        try:
            with process.stdout:
                output = process.stdout.read()
            returncode = leader.wait()
        finally:
            leader.end_group()
            process.wait()
    return returncode, output


def cause_of(output: str) -> str:
    """The line of a failed build's output that names the cause; the last line where none does."""
    lines = [" ".join(line.split()) for line in output.splitlines() if line.strip()]
    for cause in (_HASH_CAUSES, _BUILD_CAUSES, _INDEX_CAUSES):
        for line in lines:
            if (found := re.search(cause, line)) is not None:
                return line[found.start() if cause is _INDEX_CAUSES else 0 :][:_MESSAGE_LIMIT]
    return lines[-1][:_MESSAGE_LIMIT] if lines else "it printed nothing"


def not_the_wanted(output: str) -> bool:
    """Whether pip has got a file with another hash than it was to have."""
    return re.search(_HASH_CAUSES, output) is not None


def unreachable(output: str) -> bool:
    """Whether pip reached no package index, or did not find the package on it."""
    return re.search(_INDEX_CAUSES, output) is not None
