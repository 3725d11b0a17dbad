"""The real model on a CUDA device, timed by events and never synchronised per step.

Three events per step: before the copy, after it, after the optimizer. The gap between one step's last event and the
next one's first is time in which the device had nothing to run: an event is recorded when the device reaches it, so on
an idle device the first event fires as soon as the loop issues it. Gaps *inside* a step (launch latency) count as work.
:mod:`pipetune.machine.cuda_events` places the events on ``time.monotonic_ns``.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from pipetune.accelerator.contract import MAX_IN_FLIGHT, DeviceStep
from pipetune.accelerator.train_step import TrainingStep
from pipetune.machine.cuda_events import EventChain

_WARM_UP_STEPS = 3


class Batch(NamedTuple):
    """The part of a batch that a step needs."""

    images: torch.Tensor
    labels: torch.Tensor


class _Events(NamedTuple):
    begin: Any
    copied: Any
    end: Any
    batch: Any
    """Kept until the step has ended: a loader that decodes on the GPU may overwrite memory that it gets back."""


class CudaAccelerator:
    """See :class:`pipetune.accelerator.contract.Accelerator`.

    Args:
        device_index: as torch counts devices (``CUDA_VISIBLE_DEVICES`` applied).
        clock: monotonic nanoseconds.
    """

    def __init__(
        self, model: str, precision: str, device_index: int, clock: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._device = torch.device("cuda", device_index)
        torch.cuda.set_device(self._device)
        torch.backends.cudnn.benchmark = True  # fixed shapes: let cuDNN choose once, in the warm-up
        self._step = TrainingStep(model, precision, self._device)
        self._running: deque[_Events] = deque()
        self._ended: list[DeviceStep] = []
        self._chain = EventChain(torch, self._device, clock)

    def submit(self, batch: Any) -> None:
        """Enqueue the copy and the step."""
        begin = self._chain.record()
        images, labels = self._step.move(batch)
        copied = self._chain.record()
        self._step.run(images, labels)
        self._running.append(_Events(begin, copied, self._chain.record(), batch))
        while len(self._running) > MAX_IN_FLIGHT:
            self._running[0].end.synchronize()
            self._collect()

    def warm_up(self, batch_size: int, image_size: int) -> None:
        """Run a few steps on zeros: loading kernels and choosing algorithms takes seconds, once."""
        images = torch.zeros((batch_size, 3, image_size, image_size)).pin_memory()
        for _ in range(_WARM_UP_STEPS):
            self._step.run(*self._step.move(Batch(images, torch.zeros(batch_size, dtype=torch.int64))))
        torch.cuda.synchronize(self._device)
        self._chain.restart()

    def finished(self) -> list[DeviceStep]:
        """Steps whose last event has fired."""
        self._collect()
        ended, self._ended = self._ended, []
        return ended

    def drain(self) -> list[DeviceStep]:
        """Wait for the device."""
        torch.cuda.synchronize(self._device)
        return self.finished()

    def memory_bytes(self) -> int | None:
        """Largest memory that torch's allocator held (bytes)."""
        return int(torch.cuda.max_memory_reserved(self._device))

    def _collect(self) -> None:
        while self._running and self._running[0].end.query():
            events = self._running.popleft()
            start_ns = self._chain.ns_of(events.begin)
            copy_s = 1e-3 * events.begin.elapsed_time(events.copied)
            end_ns = start_ns + 1e9 * copy_s + 1e6 * events.copied.elapsed_time(events.end)
            self._chain.advance(events.end, end_ns)
            self._ended.append(DeviceStep(round(start_ns), round(end_ns), copy_s))
