"""A device that is busy ``samples / rate`` seconds per step, on a timeline of its own, and costs next to no CPU.

It behaves as a CUDA stream does: steps queue behind the one that runs, the training loop continues, and the device is
idle only while nothing is queued. The timeline is computed, not slept, so a late wake-up of the loop changes nothing as
long as a step is still queued.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

from pipetune.accelerator.contract import MAX_IN_FLIGHT, DeviceStep
from pipetune.accelerator.timeline import TimelineWriter

#: Normalising uint8 images on a device moves 21 bytes per value (to float32: 1 + 4; subtract and divide in place: 8
#: each), at the memory bandwidth of the slowest device that is emulated by name (V100 data sheet: 900 GB/s).
_BYTES_PER_VALUE, _BYTES_PER_S = 21, 900e9


class EmulatedAccelerator:
    """See :class:`pipetune.accelerator.contract.Accelerator`.

    Args:
        rate_samples_per_s: rate of the device.
        clock: monotonic nanoseconds.
        sleep: seconds; with ``clock`` a parameter for the tests.
        min_step_s: shortest step, as on a GPU that takes this long to launch all kernels of a step, however few the
            samples.
        timeline: publishes each step for ``pipetune watch``.
    """

    def __init__(
        self,
        rate_samples_per_s: float,
        clock: Callable[[], int] = time.monotonic_ns,
        sleep: Callable[[float], None] = time.sleep,
        *,
        min_step_s: float = 0.0,
        timeline: TimelineWriter | None = None,
    ) -> None:
        self._rate = rate_samples_per_s
        self._min_step_ns = round(1e9 * min_step_s)
        self._timeline = timeline
        self._clock = clock
        self._sleep = sleep
        self._free_at_ns = 0
        self._running: deque[DeviceStep] = deque()
        self._ended: list[DeviceStep] = []

    def warm_up(self, shape: tuple[int, ...]) -> None:
        """Do nothing: its first step is like any other."""

    def place(self, batch: Any) -> Any:
        """The batch as it is."""
        return batch

    def copy_rate(self, batch: Any) -> float | None:
        """``None``: nothing is copied."""
        return None

    def submit(self, batch: Any) -> None:
        """Queue a step for the batch's samples (the length of its first tensor)."""
        start = max(self._clock(), self._free_at_ns)
        full_ns = round(1e9 * len(batch.images) / self._rate) + _normalising_ns(batch.images)
        self._free_at_ns = start + max(full_ns, self._min_step_ns)
        if self._timeline is not None:
            self._timeline.add(start, self._free_at_ns, full_ns)
        self._running.append(DeviceStep(start, self._free_at_ns, None))
        while len(self._running) > MAX_IN_FLIGHT:
            self._wait_for(self._running[0])
            self._collect()

    def finished(self) -> list[DeviceStep]:
        """Steps whose end has passed."""
        self._collect()
        ended, self._ended = self._ended, []
        return ended

    def drain(self) -> list[DeviceStep]:
        """Wait for the last step."""
        if self._running:
            self._wait_for(self._running[-1])
        return self.finished()

    def memory_bytes(self) -> int | None:
        """``None``: it has no memory."""
        return None

    def _wait_for(self, step: DeviceStep) -> None:
        while (left := step.t_end_ns - self._clock()) > 0:
            self._sleep(left / 1e9)

    def _collect(self) -> None:
        now = self._clock()
        while self._running and self._running[0].t_end_ns <= now:
            self._ended.append(self._running.popleft())


def _normalising_ns(images: Any) -> int:
    if getattr(images, "itemsize", 4) != 1:
        return 0
    return round(1e9 * _BYTES_PER_VALUE * int(images.nbytes) / _BYTES_PER_S)
