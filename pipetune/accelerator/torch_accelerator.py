"""The real model on a device that torch calls an accelerator, timed by events and never synchronised per step.

Three events per step: before the copy, after it, after the optimizer. The gap between one step's last event and the
next one's first is time in which the device had nothing to run: an event is recorded when the device reaches it, so on
an idle device the first event fires as soon as the loop issues it. Gaps *inside* a step (launch latency) count as work.
:mod:`pipetune.machine.device_events` places the events on ``time.monotonic_ns``.

CUDA devices are what it is made for; AMD's (which torch calls ``cuda``, too) and Intel's (``xpu``) come along. It has
run on none of them yet: tests run it on a stand-in for CUDA.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from pipetune.accelerator.contract import MAX_IN_FLIGHT, DeviceStep
from pipetune.accelerator.device_transforms import DeviceTransforms
from pipetune.accelerator.train_step import Batch, NoStep, TrainingStep
from pipetune.machine.device_events import EventChain
from pipetune.records.sweep import NO_MODEL

_WARM_UP_STEPS = 3
#: Copies that are timed, after one that is not.
_COPIES = 8


class _Events(NamedTuple):
    begin: Any
    copied: Any
    end: Any
    batch: Any
    """Kept until the step has ended: a loader that decodes on the GPU may overwrite memory that it gets back."""


class TorchAccelerator:
    """See :class:`pipetune.accelerator.contract.Accelerator`.

    Args:
        device: with an index, as torch counts devices (``CUDA_VISIBLE_DEVICES`` applied).
        clock: monotonic nanoseconds.
        checkpointing: see :class:`pipetune.accelerator.train_step.TrainingStep`, also for ``compiled`` and
            ``transforms``.
    """

    def __init__(
        self,
        model: str,
        precision: str,
        device: torch.device,
        clock: Callable[[], int] = time.monotonic_ns,
        *,
        checkpointing: bool = False,
        compiled: bool = False,
        transforms: DeviceTransforms | None = None,
    ) -> None:
        self._device = device
        self._module = torch.get_device_module(device)
        self._module.set_device(device)
        self._step = (
            NoStep(device) if model == NO_MODEL
            else TrainingStep(
                model, precision, device, checkpointing=checkpointing, compiled=compiled, transforms=transforms
            )
        )  # fmt: skip
        self._running: deque[_Events] = deque()
        self._ended: list[DeviceStep] = []
        self._chain = EventChain(torch, device, clock)
        self._chain.synchronize()  # the model has arrived
        self._shape: tuple[int, ...] | None = None

    def warm_up(self, shape: tuple[int, ...]) -> None:
        """Run a few steps on zeros: loading kernels, choosing algorithms and compiling take seconds, once."""
        self._shape = shape
        torch.backends.cudnn.benchmark = True  # of fixed shapes: let cuDNN choose once, now
        images = torch.zeros(shape).pin_memory()
        self._step.warm_up(Batch(images, torch.zeros(shape[0], dtype=torch.int64)), _WARM_UP_STEPS)
        # What cuDNN tried its algorithms with is no memory that steps need.
        self._module.synchronize(self._device)
        self._module.empty_cache()
        self._module.reset_peak_memory_stats(self._device)
        self._chain.restart()

    def submit(self, batch: Any) -> None:
        """Enqueue the copy and the step."""
        # An epoch's last, smaller batch must not make cuDNN try all its algorithms anew, within what is timed.
        torch.backends.cudnn.benchmark = tuple(batch.images.shape) == self._shape
        begin = self._chain.record()
        images, labels = self._step.move(batch)
        copied = self._chain.record()
        self._step.run(images, labels)
        self._running.append(_Events(begin, copied, self._chain.record(), batch))
        while len(self._running) > MAX_IN_FLIGHT:
            self._running[0].end.synchronize()
            self._collect()

    def place(self, batch: Any) -> Any:
        """The batch with images and labels on the device, in the layout that a step takes."""
        images, labels = self._step.move(batch)
        self._chain.synchronize()
        return batch._replace(images=images, labels=labels)

    def copy_rate(self, batch: Any) -> float | None:
        """Rate at which the batch's images are copied from page-locked memory, alone (bytes/s)."""
        images = batch.images.cpu().pin_memory()
        self._step.move(Batch(images, batch.labels))
        begin = self._chain.record()
        for _ in range(_COPIES):
            images.to(self._device, non_blocking=True)
        end = self._chain.record()
        end.synchronize()
        took_ms = float(begin.elapsed_time(end))
        self._chain.restart()
        return _COPIES * images.nbytes / (1e-3 * took_ms) if took_ms > 0 else None

    def finished(self) -> list[DeviceStep]:
        """Steps whose last event has fired."""
        self._collect()
        ended, self._ended = self._ended, []
        return ended

    def drain(self) -> list[DeviceStep]:
        """Wait for the device."""
        self._chain.synchronize()
        return self.finished()

    def memory_bytes(self) -> int | None:
        """Largest memory that torch's allocator held (bytes)."""
        return int(self._module.max_memory_reserved(self._device))

    def _collect(self) -> None:
        while self._running and self._running[0].end.query():
            events = self._running.popleft()
            start_ns = self._chain.ns_of(events.begin)
            copy_s = 1e-3 * events.begin.elapsed_time(events.copied)
            end_ns = start_ns + 1e9 * copy_s + 1e6 * events.copied.elapsed_time(events.end)
            self._chain.advance(events.end, end_ns)
            self._ended.append(DeviceStep(round(start_ns), round(end_ns), copy_s))
