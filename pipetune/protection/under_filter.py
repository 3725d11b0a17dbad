"""Puts itself under the filter, hands the listener to pipetune, and becomes the script's command.

Run as a program, with pipetune's Python: ``python -P -E -S under_filter.py FOLDER COMMAND …``; standard library only.
``FOLDER`` has pipetune's socket. The exit code is 125 where there can be no filter; a line on standard error says why.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from pipetune.protection.seccomp_filter import install_filter

SOCKET = "listener"
CANNOT_ENTER, CANNOT_START = 125, 127


def main(folder: str, command: list[str]) -> int:
    """Become the command; returns only where that fails."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
            place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            channel.connect(f"/proc/self/fd/{place}/{SOCKET}")  # a path of a socket has 108 bytes at most
            os.close(place)
            listener = install_filter()
            socket.send_fds(channel, [b"l"], [listener])
            os.close(listener)
            if channel.recv(1) != b"g":
                raise OSError(0, "pipetune has ended")
    except OSError as error:
        sys.stderr.write(f"cannot watch what the script writes: {error.strerror or error}\n")
        return CANNOT_ENTER
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores both
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f"cannot start {command[0]!r}: {error.strerror}\n")
    return CANNOT_START


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
