"""The socket through which a loader worker hands over its batches, and to which only the training process is let in.

multiprocessing serves one connection after the other, in one thread, and waits for the key of each without a limit. So
whoever connects and says nothing holds up all batches. Here the kernel says who connects (``SO_PEERCRED``, unix(7)),
which nobody can forge, and others are refused before anything is read from them.

Why not a socket in a folder of mode 0700, as multiprocessing makes it: a kill leaves the folder behind, its path may be
longer than an address can be, and it does not refuse other programs of the same user.
"""

from __future__ import annotations

import os
import secrets
import socket
import struct
from multiprocessing import AuthenticationError, connection
from typing import Any, ClassVar

#: Longest time that somebody may be silent before the key is shown, where the kernel does not say who it is (s).
_KEY_LIMIT_S = 30.0


def listen_only_to(main_pid: int) -> None:
    """From now on nobody but this process can connect to what this worker's multiprocessing listens on."""
    WorkerListener.main_pid = main_pid
    connection.Listener = WorkerListener  # type: ignore[misc]


class WorkerListener(connection.Listener):
    """Takes the place of multiprocessing's, with its arguments, which are without an address here."""

    main_pid: ClassVar[int] = 0
    """The process that may connect, besides this one."""

    def __init__(
        self, address: Any = None, family: str | None = None, backlog: int = 1, authkey: bytes | None = None
    ) -> None:
        # An abstract address needs no file, so a kill leaves none. Containers that share a network see each other's
        # addresses, and may give workers the same PID.
        address = address or f"\0pipetune-{os.getpid()}-{secrets.token_hex(8)}"
        super().__init__(address, family, backlog)  # without the key: it is asked for below
        self._key = authkey

    def accept(self) -> connection.Connection:
        """The next connection of the training process; others are refused."""
        while True:
            link = super().accept()
            if self._admits(link):
                return link
            link.close()

    def _admits(self, link: connection.Connection) -> bool:
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, link.fileno())
        try:
            peer.setblocking(True)  # a training script may have called socket.setdefaulttimeout
            pid = _pid_of(peer)
            if pid not in (self.main_pid, os.getpid()):
                return False
            # The training process is given all the time that it needs: it may be stopped in a debugger. gVisor reports
            # this process, whoever connects.
            unknown = pid != self.main_pid
            if unknown:
                _limit_waiting(peer, _KEY_LIMIT_S)
            if self._key is not None:
                connection.deliver_challenge(link, self._key)
                connection.answer_challenge(link, self._key)
            if unknown:
                _limit_waiting(peer, 0.0)
        except (OSError, EOFError, AuthenticationError):  # what it does wrong; the next one may do it right
            return False
        finally:
            peer.detach()  # the connection's
        return True


def _pid_of(peer: socket.socket) -> int:
    """The process that has connected; 0: it is in another container."""
    pid: int = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
    return pid


def _limit_waiting(peer: socket.socket, seconds: float) -> None:
    """Let reading and writing fail after this long; 0: never."""
    limit = struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        peer.setsockopt(socket.SOL_SOCKET, option, limit)
