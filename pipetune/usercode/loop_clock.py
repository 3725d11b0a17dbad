"""Times the steps of the user's own training loop, of which only the requests for batches can be observed.

Between getting a batch and asking for the next one, the loop runs its step. On the CPU that is the work itself. With
CUDA the step is only queued then, so an event is recorded on the current stream at both moments: the device reaches the
first one when it has finished the step before, or at once if it is idle. What the loop's body does before its first
kernel counts as work; kernels on other streams are not seen.
"""

from __future__ import annotations

import re
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from pipetune.errors import UsageError
from pipetune.machine.device_events import EventChain
from pipetune.records.sweep import StepTime


class _Asked(NamedTuple):
    t_start_ns: int
    data_wait_s: float
    samples: int


class _Event(NamedTuple):
    event: Any
    queued_ns: int
    """When it was queued, by the host's clock (ns): the device reaches it then or later."""


class LoopClock(Protocol):
    """Makes a :class:`StepTime` from the two moments of each step."""

    name: str
    """``host`` or ``cuda``."""

    def gpu_uuid(self) -> str | None:
        """UUID of the GPU that the loop trains on, as NVML wants it; ``None``: it trains on none."""

    def begin(self, now_ns: int) -> None:
        """An epoch begins. The time since the end of the one before, as of an evaluation, is not idle time."""

    def handed(self, asked_ns: int, got_ns: int, samples: int) -> None:
        """The loop gets a batch now."""

    def done(self, now_ns: int) -> list[StepTime]:
        """The loop asks for the next batch, or has ended. Returns the steps that are known to have finished."""

    def drain(self) -> list[StepTime]:
        """The loop has ended. Waits for the remaining steps and returns them."""


class HostClock:
    """A clock for loops whose body lasts as long as the step: on the CPU, and where each step waits for its device."""

    name = "host"

    def gpu_uuid(self) -> str | None:
        """See :class:`LoopClock`."""
        return None

    def __init__(self) -> None:
        self._open: tuple[_Asked, int] | None = None
        self._last_end_ns: int | None = None

    def begin(self, now_ns: int) -> None:
        """See :class:`LoopClock`."""
        self._last_end_ns = None if self._last_end_ns is None else now_ns

    def handed(self, asked_ns: int, got_ns: int, samples: int) -> None:
        """See :class:`LoopClock`."""
        self._open = (_Asked(asked_ns, (got_ns - asked_ns) / 1e9, samples), got_ns)

    def done(self, now_ns: int) -> list[StepTime]:
        """See :class:`LoopClock`."""
        if self._open is None:
            return []
        asked, began_ns = self._open
        step = _step(asked, began_ns, now_ns, self._last_end_ns)
        self._open, self._last_end_ns = None, now_ns
        return [step]

    def drain(self) -> list[StepTime]:
        """See :class:`LoopClock`."""
        return []


class CudaClock:
    """A clock by CUDA events on the loop's current stream; nothing is synchronised until the loop has ended.

    Args:
        torch: the imported module.
        device: index of the CUDA device.
        clock: ns, like ``time.monotonic_ns``.
    """

    name = "cuda"

    def __init__(self, torch: Any, device: int, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._torch, self.device_index = torch, device
        self._chain = EventChain(torch, torch.device("cuda", device), clock)
        self._running: deque[tuple[_Asked | None, _Event, _Event]] = deque()
        self._open: tuple[_Asked, _Event] | None = None
        self._clock = clock
        self._first = True

    def gpu_uuid(self) -> str | None:
        """See :class:`LoopClock`."""
        return str(self._torch.cuda.get_device_properties(self.device_index).uuid)

    def begin(self, now_ns: int) -> None:
        """See :class:`LoopClock`."""
        # Queued like a step: what was queued since the last one (an evaluation) ends before this event.
        event = self._event()
        self._running.append((None, event, event))

    def handed(self, asked_ns: int, got_ns: int, samples: int) -> None:
        """See :class:`LoopClock`."""
        self._open = (_Asked(asked_ns, (got_ns - asked_ns) / 1e9, samples), self._event())

    def done(self, now_ns: int) -> list[StepTime]:
        """See :class:`LoopClock`."""
        if self._open is not None:
            self._running.append((*self._open, self._event()))
            self._open = None
        return self._collect()

    def drain(self) -> list[StepTime]:
        """See :class:`LoopClock`."""
        self._chain.synchronize()
        return self._collect()

    def _event(self) -> _Event:
        queued_ns = self._clock()
        return _Event(self._chain.record(), queued_ns)

    def _collect(self) -> list[StepTime]:
        found = []
        # Query both events: where the loop's body changes the stream, the second one does not wait for the first.
        while self._running and self._running[0][1].event.query() and self._running[0][2].event.query():
            asked, begin, end = self._running.popleft()
            now_ns = self._clock()
            # The host's and the device's clocks drift apart, so limit each time: not before it was queued, not after
            # now.
            began_ns = min(max(self._chain.ns_of(begin.event), begin.queued_ns), now_ns)
            end_ns = began_ns + 1e6 * begin.event.elapsed_time(end.event)
            end_ns = min(max(end_ns, end.queued_ns), now_ns)
            if asked is not None:
                last_ns = None if self._first else round(self._chain.last_ns)
                found.append(_step(asked, round(began_ns), round(end_ns), last_ns))
                self._first = False
            self._chain.advance(end.event, end_ns)
        return found


def clock_for(device: str | None) -> LoopClock:
    """The clock of a loop that trains on ``device``.

    Args:
        device: ``cuda``, ``cuda:N`` or ``cpu``; ``None``: CUDA where the program has imported torch and uses it.

    Raises:
        UsageError: another name, CUDA without torch, or a device that is not there.
    """
    torch = sys.modules.get("torch")
    if device is not None and not re.fullmatch(r"cpu|cuda(:\d+)?", str(device)):
        raise UsageError(f"device {str(device)!r} is not known", hint="write cpu, cuda or cuda:N")
    device = None if device is None else str(device)
    if device is None:
        device = "cuda" if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized() else "cpu"
    if not device.startswith("cuda"):
        return HostClock()
    if torch is None:
        raise UsageError(f"device {device!r}, but this program has not imported torch", hint="import torch first")
    index = torch.device(device).index
    try:
        return CudaClock(torch, torch.cuda.current_device() if index is None else index)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).split("\n", 1)[0]
        raise UsageError(f"device {device!r} cannot be used: {reason}", hint="see nvidia-smi") from error


def _step(asked: _Asked, began_ns: int, end_ns: int, last_end_ns: int | None) -> StepTime:
    return StepTime(
        t_start_ns=asked.t_start_ns,
        data_wait_s=asked.data_wait_s,
        h2d_s=None,
        compute_s=max(0, end_ns - began_ns) / 1e9,
        idle_s=0.0 if last_end_ns is None else max(0, began_ns - last_end_ns) / 1e9,
        t_end_ns=end_ns,
        samples=asked.samples,
    )
