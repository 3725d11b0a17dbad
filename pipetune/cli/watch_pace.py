"""How often the live view of a watch judges and draws: as often as the CPU time that each costs allows."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

#: CPU time per second of watching that a task of the live view may take.
_CORE_FRAC = 0.0002


class Pace:
    """Says when a task of the live view is due again.

    Args:
        first_s: time between two at first.
        bounds_s: shortest and longest time between two later.
    """

    def __init__(self, first_s: float, bounds_s: tuple[float, float]) -> None:
        self._first_s, self._bounds_s = first_s, bounds_s
        self._last_s, self._cost_s = 0.0, 0.0

    def due(self, now_s: float, *, first: bool) -> bool:
        """Whether to do it at ``now_s``; ``first``: the watch has just begun, and cost does not count."""
        shortest, longest = self._bounds_s
        wait_s = self._first_s if first else min(longest, max(shortest, self._cost_s / _CORE_FRAC))
        return now_s - self._last_s >= wait_s

    @contextlib.contextmanager
    def counted(self, now_s: float) -> Iterator[None]:
        """Do it inside the ``with``, at ``now_s``; several parts at the same time count together."""
        if now_s != self._last_s:
            self._last_s, self._cost_s = now_s, 0.0
        before_s = time.thread_time()
        yield
        self._cost_s += time.thread_time() - before_s
