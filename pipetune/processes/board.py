"""Board: numbers that the processes of one family show each other, in memory that they share without a file.

It is made before they are forked. Each member writes to a row of its own and reads all rows; who waits for others is
woken through a pipe.

Why not ``multiprocessing``: its barriers hang for good when a member is killed, and its locks have names in /dev/shm,
which stay behind.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import select
import threading
from collections.abc import Callable

_WORD = 8
#: Rows begin on cache lines of their own (bytes), or each write would slow down everybody's reads.
_LINE = 64
#: Word of each row that says whether its member waits; the caller's words follow.
_WAITS = 0
#: A member that was not woken, because the other one died in between, looks again after this long (s).
_LOOK_AGAIN_S = 0.1


class Board:
    """One row of whole numbers for each member, all 0 at first.

    Args:
        members: number of processes.
        words: numbers in a row.
    """

    def __init__(self, members: int, words: int) -> None:
        self.members = members
        self._stride = -(-(1 + words) * _WORD // _LINE) * _LINE // _WORD
        self._memory = mmap.mmap(-1, members * self._stride * _WORD)
        self._words = memoryview(self._memory).cast("q")
        self._pipes = [os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC) for _ in range(members)]
        self._fence = threading.Lock()
        self._me = -1

    def join(self, member: int) -> None:
        """Be this member: to be called in its process, after the fork."""
        self._me = member

    def show(self, *values: tuple[int, int]) -> None:
        """Write pairs of word and value to one's own row, one after the other, and wake who waits."""
        base = self._me * self._stride + 1
        for word, value in values:
            # A value is seen only after those before it: taking a lock keeps a processor from reordering the writes.
            with self._fence:
                self._words[base + word] = value
        for member in range(self.members):
            if member != self._me and self._words[member * self._stride + _WAITS]:
                with contextlib.suppress(BlockingIOError):  # it is full of calls
                    os.write(self._pipes[member][1], b"\0")

    def note(self, word: int, value: int) -> None:
        """Write to one's own row what nobody waits for."""
        self._words[self._me * self._stride + 1 + word] = value

    def seen(self, member: int, word: int) -> int:
        """What a member shows."""
        return self._words[member * self._stride + 1 + word]

    def all_seen(self, word: int) -> list[int]:
        """What each member shows in the same word."""
        return [self.seen(member, word) for member in range(self.members)]

    def waits(self, member: int) -> bool:
        """Whether a member waits for others."""
        return bool(self._words[member * self._stride + _WAITS])

    def wait(self, until: Callable[[], bool]) -> None:
        """Wait until it is so. Members whose processes have ended are the caller's concern."""
        if until():
            return
        place, pipe = self._me * self._stride + _WAITS, self._pipes[self._me][0]
        called = select.poll()  # select() takes no descriptor above 1023
        called.register(pipe, select.POLLIN)
        self._words[place] = 1
        try:
            while True:
                with self._fence:
                    done = until()
                if done:
                    return
                called.poll(1000 * _LOOK_AGAIN_S)
                with contextlib.suppress(BlockingIOError):
                    os.read(pipe, 1 << 12)
        finally:
            self._words[place] = 0
