"""The real model on the CPU, which competes with the loader for the same cores."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from pipetune.accelerator.contract import DeviceStep
from pipetune.accelerator.device_transforms import DeviceTransforms
from pipetune.accelerator.train_step import Batch, TrainingStep


class CpuAccelerator:
    """See :class:`pipetune.accelerator.contract.Accelerator`. ``submit`` returns when the step is done.

    Args:
        clock: monotonic nanoseconds.
        compiled: see :class:`pipetune.accelerator.train_step.TrainingStep`; ``transforms``, too.
    """

    def __init__(
        self, model: str, precision: str, clock: Callable[[], int] = time.monotonic_ns, *, compiled: bool = False,
        transforms: DeviceTransforms | None = None,
    ) -> None:  # fmt: skip
        self._step = TrainingStep(model, precision, torch.device("cpu"), compiled=compiled, transforms=transforms)
        self._clock = clock
        self._ended: list[DeviceStep] = []

    def warm_up(self, shape: tuple[int, ...]) -> None:
        """Run one step, which fills the caches of allocator and kernels; a model that is to be compiled is compiled."""
        self._step.warm_up(Batch(torch.zeros(shape), torch.zeros(shape[0], dtype=torch.int64)), steps=1)

    def place(self, batch: Any) -> Any:
        """The batch as it is: a step reads it where the loader has put it."""
        return batch

    def copy_rate(self, batch: Any) -> float | None:
        """``None``: nothing is copied."""
        return None

    def submit(self, batch: Any) -> None:
        """Run the step to its end."""
        start = self._clock()
        self._step.run(*self._step.move(batch))
        self._ended.append(DeviceStep(start, self._clock(), None))

    def finished(self) -> list[DeviceStep]:
        """All steps so far."""
        ended, self._ended = self._ended, []
        return ended

    def drain(self) -> list[DeviceStep]:
        """All steps so far; none is ever pending."""
        return self.finished()

    def memory_bytes(self) -> int | None:
        """``None``: its memory is the process's."""
        return None
