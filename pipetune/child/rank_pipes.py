"""A pipe from each rank to the process that looks after them, which passes whole lines on to the parent.

Why not one pipe for all ranks, with a lock: one that is stopped while it has the lock would stop the others, and one
that is killed in the middle of a line would cut it.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal

from pipetune.measure import wire

_AT_ONCE = 1 << 16


class RankPipes:
    """The pipes; made before the ranks are forked.

    Args:
        ranks: their number.
    """

    def __init__(self, ranks: int) -> None:
        self._ends = [os.pipe() for _ in range(ranks)]
        self._begun = [b""] * ranks
        self._selector: selectors.BaseSelector | None = None

    def of_rank(self, rank: int) -> int:
        """Called in a rank: the end that it writes to. The others are closed."""
        for number, (reading, writing) in enumerate(self._ends):
            os.close(reading)
            if number != rank:
                os.close(writing)
        return self._ends[rank][1]

    def open(self) -> None:
        """Called in the process that looks after the ranks, once all are forked. It hears of their ends from now on."""
        self._selector = selectors.DefaultSelector()
        for number, (reading, writing) in enumerate(self._ends):
            os.close(writing)
            os.set_blocking(reading, False)
            self._selector.register(reading, selectors.EVENT_READ, number)
        woken, waking = os.pipe()
        for end in (woken, waking):
            os.set_blocking(end, False)
        self._selector.register(woken, selectors.EVENT_READ, None)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # without a handler nothing is written
        signal.set_wakeup_fd(waking, warn_on_full_buffer=False)

    def pass_on(self, sender: wire.Sender, wait_s: float) -> None:
        """Pass on what has arrived, as soon as something has, or a rank has ended, or the time (s) is over."""
        assert self._selector is not None
        for key, _ in self._selector.select(wait_s):
            with contextlib.suppress(BlockingIOError):
                data = os.read(key.fd, _AT_ONCE)
                if not data:
                    self._selector.unregister(key.fd)
                elif key.data is not None:
                    *lines, self._begun[key.data] = (self._begun[key.data] + data).split(b"\n")
                    sender.write(b"".join(line + b"\n" for line in lines))

    def pass_rest_on(self, sender: wire.Sender) -> None:
        """Pass on all that has arrived by now: the last words of ranks that have ended."""
        for _ in range(len(self._ends)):
            self.pass_on(sender, 0.0)
