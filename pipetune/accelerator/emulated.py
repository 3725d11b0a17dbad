"""A device that is busy ``samples / rate`` seconds per step, on a timeline of its own.

It behaves as a CUDA stream does: steps queue behind the one that runs, the training loop continues, and the device is
idle only while nothing is queued. The timeline is computed, not slept, so a late wake-up of the loop changes nothing as
long as a step is still queued.

What a GPU costs the host can be emulated, too. Launching a step is CPU time of the training process, in which the GIL
is held and dropped in turn as by eager PyTorch: it competes with the loader's threads for the GIL and with its
processes for the cores, and where it takes longer than the step, it sets the pace. A copy takes time on the device
before each step, a quarter as much for bytes as for floats. How fast it augments images is stated with it, too. Not
emulated is whatever only a driver does: page-locking
(so ``pin_memory`` cannot be compared), the host's waiting for pageable copies, and bandwidth that both need.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from pipetune.accelerator.common_steps import CommonSteps, device_step
from pipetune.accelerator.contract import MAX_IN_FLIGHT, DeviceStep
from pipetune.accelerator.timeline import TimelineWriter

#: Normalising uint8 images on a device moves 21 bytes per value (to float32: 1 + 4; subtract and divide in place: 8
#: each), at the memory bandwidth of the slowest device that is emulated by name (V100 data sheet: 900 GB/s).
_BYTES_PER_VALUE, _BYTES_PER_S = 21, 900e9


class _Resident(NamedTuple):
    """A batch that lies on the device."""

    images: Any
    labels: Any


class EmulatedAccelerator:
    """See :class:`pipetune.accelerator.contract.Accelerator`.

    Args:
        rate_samples_per_s: rate of the device.
        clock: monotonic nanoseconds.
        sleep: seconds; with ``clock`` a parameter for the tests.
        min_step_s: shortest step, as on a GPU that takes this long to launch all kernels of a step, however few the
            samples.
        launch_s: CPU time of launching a step (s).
        copy_bytes_per_s: rate of the copy to the device; ``None``: batches are there at once.
        augment_samples_per_s: rate at which the device augments each batch first; ``None``: it does not.
        launch: uses that much CPU time; a parameter for the tests.
        timeline: publishes each step for ``pipetune watch``.
        common: the steps of all ranks, which end together; ``None``: no other rank is waited for.
    """

    def __init__(
        self,
        rate_samples_per_s: float,
        clock: Callable[[], int] = time.monotonic_ns,
        sleep: Callable[[float], None] = time.sleep,
        *,
        min_step_s: float = 0.0,
        launch_s: float = 0.0,
        copy_bytes_per_s: float | None = None,
        augment_samples_per_s: float | None = None,
        launch: Callable[[float], None] | None = None,
        timeline: TimelineWriter | None = None,
        common: CommonSteps | None = None,
    ) -> None:
        self._rate = rate_samples_per_s
        self._min_step_ns = round(1e9 * min_step_s)
        self._launch_s = launch_s
        self._launch = launch or _use_cpu
        self._copy_bytes_per_s = copy_bytes_per_s
        self._augment_s = 0.0 if augment_samples_per_s is None else 1 / augment_samples_per_s
        self._timeline = timeline
        self._common = common
        self._clock = clock
        self._sleep = sleep
        self._free_at_ns = 0
        self._unknown: deque[tuple[float | None, int]] = deque()
        self._running: deque[DeviceStep] = deque()
        self._ended: list[DeviceStep] = []

    def warm_up(self, shape: tuple[int, ...]) -> None:
        """Do nothing: its first step is like any other."""

    def place(self, batch: Any) -> Any:
        """The batch as one that lies on the device: a step does not copy it."""
        return _Resident(batch.images, batch.labels)

    def copy_rate(self, batch: Any) -> float | None:
        """As it was given."""
        return self._copy_bytes_per_s

    def submit(self, batch: Any) -> None:
        """Queue a step for the batch's samples (the length of its first tensor)."""
        asked = self._clock()
        if self._launch_s:
            self._launch(self._launch_s)
        # The device runs kernels as they are launched: it cannot end before the last one was.
        launched = self._clock() if self._launch_s else 0
        copy_ns = 0
        if self._copy_bytes_per_s is not None and not isinstance(batch, _Resident):
            copy_ns = round(1e9 * batch.images.nbytes / self._copy_bytes_per_s)
        full_ns = round(1e9 * len(batch.images) * (1 / self._rate + self._augment_s)) + _normalising_ns(batch.images)
        length_ns = copy_ns + max(full_ns, self._min_step_ns)
        copy_s = None if self._copy_bytes_per_s is None else copy_ns / 1e9
        if self._common is None:
            start = max(asked, self._free_at_ns)
            self._free_at_ns = max(start + length_ns, launched)
            self._queue(DeviceStep(start, self._free_at_ns, copy_s), full_ns)
        else:
            self._common.add(asked, length_ns, launched)
            self._unknown.append((copy_s, full_ns))
        while len(self._running) + len(self._unknown) > MAX_IN_FLIGHT:
            self._wait_for_oldest()

    def finished(self) -> list[DeviceStep]:
        """Steps whose end has passed."""
        self._collect()
        ended, self._ended = self._ended, []
        return ended

    def drain(self) -> list[DeviceStep]:
        """Wait for the last step."""
        while self._running or self._unknown:
            self._wait_for_oldest()
        return self.finished()

    def memory_bytes(self) -> int | None:
        """``None``: it has no memory."""
        return None

    def _queue(self, step: DeviceStep, full_ns: int) -> None:
        self._running.append(step)
        if self._timeline is not None:
            self._timeline.add(step.t_start_ns, step.t_end_ns - round(1e9 * step.others_s), full_ns)

    def _wait_for_oldest(self) -> None:
        if not self._running and self._common is not None:
            self._common.wait_known()
            self._queue_known()
        while (left := self._running[0].t_end_ns - self._clock()) > 0:
            self._sleep(left / 1e9)
        self._collect()

    def _queue_known(self) -> None:
        """Steps that all ranks have begun, whose end is known by that."""
        while self._common is not None and self._unknown and self._common.is_known():
            copy_s, full_ns = self._unknown.popleft()
            self._queue(device_step(self._common.read(), copy_s), full_ns)

    def _collect(self) -> None:
        self._queue_known()
        now = self._clock()
        while self._running and self._running[0].t_end_ns <= now:
            self._ended.append(self._running.popleft())


def _use_cpu(seconds: float) -> None:
    """Use that much CPU time of this thread as the launching of kernels does: small operators, one after the other.

    Each holds the GIL until it is in torch's C++ code and drops it there.
    """
    import torch

    values = torch.zeros(8)
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        values.add_(1)


def _normalising_ns(images: Any) -> int:
    if getattr(images, "itemsize", 4) != 1:
        return 0
    return round(1e9 * _BYTES_PER_VALUE * int(images.nbytes) / _BYTES_PER_S)


def rate_of_process(scatter: float) -> float:
    """Factor on the rate, drawn anew in each process: normal around 1 with this standard deviation, 0.1 at least."""
    return max(0.1, random.SystemRandom().gauss(1.0, scatter)) if scatter else 1.0
