"""CUDA events placed on the host's monotonic clock, without synchronising.

CUDA reports only differences between events, as float32 milliseconds. So each event's time is that of the one before it
plus their difference, in a chain that starts at one synchronisation.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


class EventChain:
    """Records events on the current stream of a device, and places them on the clock.

    Args:
        torch: the imported module.
        device: as ``torch.cuda`` takes it.
        clock: ns, as ``time.monotonic_ns``.
    """

    def __init__(self, torch: Any, device: Any, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._torch = torch
        self._device = device
        self._clock = clock
        self.restart()

    def restart(self) -> None:
        """Begin the chain anew, after waiting for the device."""
        self._last = self.record()
        self._torch.cuda.synchronize(self._device)
        self.last_ns = float(self._clock())
        """Time of the newest event that was passed to :meth:`advance`."""

    def record(self) -> Any:
        """An event at the end of the stream: the device reaches it when all that is queued now is done."""
        # blocking: waiting for an event must not use a core, since that time would count as the loader's.
        event = self._torch.cuda.Event(enable_timing=True, blocking=True)
        event.record(self._torch.cuda.current_stream(self._device))
        return event

    def ns_of(self, event: Any) -> float:
        """Time of an event that the device has reached."""
        return self.last_ns + 1e6 * float(self._last.elapsed_time(event))

    def advance(self, event: Any, t_ns: float) -> None:
        """Continue the chain from this event, which was reached at ``t_ns``."""
        self._last, self.last_ns = event, t_ns
