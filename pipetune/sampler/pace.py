"""A loop that calls a function at a steady pace: used by the sampler of a sweep and by the watch.

Due times are whole intervals after the first, so the pace does not drift; those that were missed are skipped, because
several readings at once would each cover next to no time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

#: This many failures in a row are a fault of pipetune's or the machine's that will not pass.
_MAX_FAILURES = 5


class PacedLoop:
    """Calls a function at a steady pace, in the thread that calls :meth:`run`.

    Args:
        interval_s: time from one call to the next (s), asked after each.
        clock: ns, like ``time.monotonic_ns``.
    """

    def __init__(self, interval_s: Callable[[], float], clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._interval_s, self._clock = interval_s, clock
        self._stopping = threading.Event()
        self.error: Exception | None = None
        """The newest exception of a call."""
        self.given_up = False
        """Five calls in a row have failed, which has ended the loop."""

    def stop(self) -> None:
        """End the loop after the call that is running, if any; from any thread, also before :meth:`run`."""
        self._stopping.set()

    def run(self, step: Callable[[], bool]) -> None:
        """Call ``step`` until it returns ``False``, :meth:`stop` is called, or five calls in a row have failed."""
        failures = 0
        due_ns = self._clock()
        while not self._stopping.is_set():
            try:
                if not step():
                    return
                failures = 0
            except Exception as error:
                self.error = error
                failures += 1
                if failures >= _MAX_FAILURES:
                    self.given_up = True
                    return
            due_ns = next_due_ns(due_ns, self._clock(), self._interval_s())
            self._stopping.wait(max(0.0, (due_ns - self._clock()) / 1e9))


def next_due_ns(due_ns: int, now_ns: int, interval_s: float) -> int:
    """When the next call is due: the first whole number of intervals after ``due_ns`` that is later than ``now_ns``.

    Counting starts from when the last call was *due*, not from when it was made.
    """
    interval_ns = max(1, round(interval_s * 1e9))
    return due_ns + interval_ns * max(1, (now_ns - due_ns) // interval_ns + 1)
