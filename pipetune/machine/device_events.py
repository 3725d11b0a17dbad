"""A device's events placed on the host's monotonic clock, without synchronising.

CUDA, ROCm and XPU report only differences between events, as float32 milliseconds. So each event's time is that of the
one before it plus their difference, in a chain that starts at one synchronisation.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

# Why not torch.Event, which exists for every accelerator: torch documents its ``blocking`` as having no effect, and who
# waits for an event that does not block keeps a core busy, whose time would count as the loader's.
_OPTIONS: dict[str, dict[str, bool]] = {"cuda": {"enable_timing": True, "blocking": True}}
_OTHER_OPTIONS = {"enable_timing": True}

#: Number of times that the chain's first event is placed on the clock. The one that the host saw soonest counts: on a
#: busy machine it may be woken up milliseconds late.
_ATTEMPTS = 5


class EventChain:
    """Records events on the current stream of a device, and places them on the clock.

    Args:
        torch: the imported module.
        device: a ``torch.device`` with an index.
        clock: ns, as ``time.monotonic_ns``.
    """

    def __init__(self, torch: Any, device: Any, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._module = torch.get_device_module(device)
        self._device = device
        self._clock = clock
        self.restart()

    def restart(self) -> None:
        """Begin the chain anew, after waiting for the device."""
        self.synchronize()
        attempts = []
        for _ in range(_ATTEMPTS):
            began_ns = self._clock()
            event = self.record()
            self.synchronize()
            ended_ns = self._clock()
            attempts.append((ended_ns - began_ns, ended_ns, event))
        _, ended_ns, self._last = min(reversed(attempts), key=lambda attempt: attempt[0])
        self.last_ns = float(ended_ns)
        """Time of the newest event that was passed to :meth:`advance`."""

    def record(self) -> Any:
        """An event that the device reaches when it has done what is queued now."""
        event = self._module.Event(**_OPTIONS.get(self._device.type, _OTHER_OPTIONS))
        event.record(self._module.current_stream(self._device))
        return event

    def synchronize(self) -> None:
        """Wait until the device has done everything that is queued."""
        self._module.synchronize(self._device)

    def ns_of(self, event: Any) -> float:
        """Time of an event that the device has reached."""
        return self.last_ns + 1e6 * float(self._last.elapsed_time(event))

    def advance(self, event: Any, t_ns: float) -> None:
        """Continue the chain from this event, which was reached at ``t_ns``."""
        self._last, self.last_ns = event, t_ns
