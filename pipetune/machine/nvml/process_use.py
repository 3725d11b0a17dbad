"""How much of a GPU each process uses, for GPUs that several compute on. By PID, as the host counts it."""

from __future__ import annotations

from typing import Any

from pipetune.machine.nvml.calls import Calls
from pipetune.machine.nvml.signals import STALE_NS, share

#: Samples of processes that are older than the newest by more than this say that the process has been idle since.
_RECENT_US = 1_000_000


class ProcessUse:
    """Share of the time in which each process had a kernel on the multiprocessors.

    The driver keeps samples of the processes that have used the GPU lately, and leaves out those that did nothing.
    """

    def __init__(self, calls: Calls, handle: Any) -> None:
        self._calls, self._handle = calls, handle
        self._newest_us = 0
        self._known: tuple[int, dict[int, float]] | None = None

    def read(self, now_ns: int) -> dict[int, float] | None:
        """PID -> share (0..1), of the last second or so; ``None``: the driver does not tell."""
        # Without the newest second the answer would be empty at times, although a process computes.
        since_us = max(0, self._newest_us - _RECENT_US)
        samples = self._calls.ask("nvmlDeviceGetProcessUtilization", self._handle, since_us)
        known = sorted((s.timeStamp, s.pid, s.smUtil) for s in samples or () if s.pid and s.timeStamp)
        if known:
            self._newest_us = known[-1][0]
            recent = [sample for sample in known if sample[0] > self._newest_us - _RECENT_US]
            # Of each process the newest counts.
            self._known = (now_ns, {pid: share(percent) / 100 for _, pid, percent in recent})
        if self._known is None or now_ns - self._known[0] > STALE_NS:
            return None
        return self._known[1]
