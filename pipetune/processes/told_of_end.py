"""A command that is told when the process that started it has ended, also by SIGKILL."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

#: Becomes the command, which keeps the wish (PR_SET_PDEATHSIG). Python ignores SIGPIPE and SIGXFSZ, and what is ignored
#: stays so in the command. In a program of its own and not between fork and exec: there may be threads.
_PROGRAM = (
    "import ctypes, os, signal, sys\n"
    "ctypes.CDLL(None).prctl(1, int(signal.SIGTERM))\n"
    "if os.getppid() != int(sys.argv[1]): sys.exit(143)\n"
    "for number in (signal.SIGPIPE, signal.SIGXFSZ): signal.signal(number, signal.SIG_DFL)\n"
    "os.execvp(sys.argv[2], sys.argv[2:])\n"
)


def told_of_end(command: Sequence[str]) -> list[str]:
    """The command, which gets SIGTERM when the thread of ours that has started it ends. Its process is the same."""
    return [sys.executable, "-P", "-E", "-S", "-c", _PROGRAM, str(os.getpid()), *command]
