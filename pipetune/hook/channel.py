"""JSON lines between a process of the user's script and pipetune, over a Unix socket in a private folder.

Why a socket and no inherited pipe: descriptors do not survive the ``close_fds`` of a launcher, the environment does.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
from typing import Any

from pipetune.measure.script.protocol import path_of_socket


class ChannelClosedError(Exception):
    """pipetune has ended."""


class Channel:
    """One process's end. It connects when there is something to send, and again where its descriptor was closed.

    A forked child starts without a connection, so that a loader worker never speaks for its parent.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._socket: socket.socket | None = None
        self._inode: tuple[int, int] | None = None
        self._buffer = b""
        os.register_at_fork(after_in_child=self._drop)

    def send(self, kind: str, **fields: Any) -> None:
        """Send one message.

        Raises:
            ChannelClosedError: pipetune has ended.
        """
        line = json.dumps({"type": kind, **fields}).encode() + b"\n"
        try:
            self._connected().sendall(line)
        except OSError as error:
            raise ChannelClosedError(str(error)) from error

    def receive(self) -> dict[str, Any]:
        """Wait for the next message.

        Raises:
            ChannelClosedError: pipetune has ended.
        """
        while b"\n" not in self._buffer:
            try:
                data = self._connected().recv(1 << 16)
            except OSError as error:
                raise ChannelClosedError(str(error)) from error
            if not data:
                raise ChannelClosedError("the connection was closed")
            self._buffer += data
        return self._next_line()

    def poll(self) -> dict[str, Any] | None:
        """The next message, if one has arrived; does not wait.

        Raises:
            ChannelClosedError: pipetune has ended.
        """
        if b"\n" not in self._buffer:
            try:
                data = self._connected().recv(1 << 16, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return None
            except OSError as error:
                raise ChannelClosedError(str(error)) from error
            if not data:
                raise ChannelClosedError("the connection was closed")
            self._buffer += data
        return self._next_line() if b"\n" in self._buffer else None

    def _next_line(self) -> dict[str, Any]:
        line, self._buffer = self._buffer.split(b"\n", 1)
        message: dict[str, Any] = json.loads(line)
        return message

    def _connected(self) -> socket.socket:
        """The socket. A script may close all descriptors, and the number may then be another file's."""
        if self._socket is not None and self._inode is not None:
            with contextlib.suppress(OSError):
                found = os.fstat(self._socket.fileno())
                if (found.st_dev, found.st_ino) == self._inode:
                    return self._socket
            self._socket.detach()
            self._socket, self._buffer = None, b""
        made = socket.socket(socket.AF_UNIX)
        with path_of_socket(self._folder) as path:
            made.connect(path)
        found = os.fstat(made.fileno())
        self._socket, self._inode = made, (found.st_dev, found.st_ino)
        made.sendall(json.dumps(hello()).encode() + b"\n")
        return made

    def _drop(self) -> None:
        if self._socket is not None and self._inode is not None:
            with contextlib.suppress(OSError):
                found = os.fstat(self._socket.fileno())
                if (found.st_dev, found.st_ino) == self._inode:
                    self._socket.close()
        self._socket, self._buffer = None, b""


def hello() -> dict[str, Any]:
    """The first message of each process: who it is."""
    environment = {name: int(value) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE")
                   if (value := os.environ.get(name, "")).isdigit()}  # fmt: skip
    return {
        "type": "hello",
        "pid": os.getpid(),
        "argv": sys.orig_argv[:20],
        "python": sys.version.split()[0],
        "ranks": environment,
    }
