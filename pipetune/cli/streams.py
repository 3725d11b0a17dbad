"""Standard streams that are closed, full, broken or blocked: what is said there may be lost, and nothing else is."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import sys
import threading
from typing import Any, TextIO

#: Lines that wait for a reader at most; further ones are lost.
_MOST_LINES = 100
#: Time that the last lines have when the command ends (s).
_END_S = 1.0


def open_missing() -> None:
    """Open the null device where a standard stream is closed.

    Why: the next file that is opened would be it, and whatever a child process prints would go into that file.
    """
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(fd, "r" if fd == 0 else "w", closefd=False))


def give_up(stream: TextIO) -> None:
    """Let go of what cannot be written. Python tries once more at its end, and exits with 120 where that fails."""
    try:
        stream.flush()
    except (OSError, ValueError):
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class Lossy:
    """A text stream that drops what cannot be written: a full disk, a reader that has left."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write it, or not."""
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Bring it out, or not."""
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()


class LineWriter:
    """Writes lines in a thread of its own, so that who says them never waits: a terminal may be stopped (Ctrl-S)."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lines: queue.Queue[bytes | None] = queue.Queue(_MOST_LINES)
        self._thread: threading.Thread | None = None
        self.lost = 0
        """Lines for which there was no room."""

    def say(self, text: str) -> None:
        """Have a line written, some time or never."""
        try:
            fd = self._stream.fileno()
        except (OSError, ValueError, AttributeError):  # a stream of a test's or a notebook's, which never blocks
            Lossy(self._stream).write(text + "\n")
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._write, args=(fd,), name="pipetune-lines", daemon=True)
            self._thread.start()
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        try:
            self._lines.put_nowait(text.encode(encoding, "backslashreplace") + b"\n")
        except queue.Full:
            self.lost += 1

    def close(self) -> None:
        """Give the last lines a moment. May be called again."""
        thread, self._thread = self._thread, None
        if thread is not None:
            with contextlib.suppress(queue.Full):
                self._lines.put(None, timeout=_END_S)
            thread.join(_END_S)

    def _write(self, fd: int) -> None:
        # A signal that came to this thread would not reach who waits for it.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        # Past Python's buffer, whose lock a write that blocks would hold at the end of the interpreter.
        while (line := self._lines.get()) is not None:
            with contextlib.suppress(OSError):
                rest = memoryview(line)
                while rest:
                    rest = rest[os.write(fd, rest) :]
