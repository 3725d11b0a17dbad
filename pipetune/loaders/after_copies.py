"""When memory that a CUDA device copies from, or computes with, may be written again.

``images.to("cuda", non_blocking=True)`` returns before the device has read ``images``, and with them goes the last
tensor on that memory; a batch that DALI has decoded on the device goes when its step is queued. So memory is free when

1. no tensor on it is left, and
2. all work has ended that was queued then, and when the training loop next asked for a batch, on the *current stream*
   of each CUDA device that this process uses.

A loop that copies on the current stream is always safe. One that copies on a stream of its own, as prefetchers do, has
to make the current stream wait for it (``torch.cuda.current_stream().wait_stream(side)``) before it asks for the next
batch, or to let go of the batch inside of ``with torch.cuda.stream(side)``. It needs such a wait in any case before
it computes with the copy.

Why not torch's page-locked memory, which knows the streams of its copies: see :mod:`pipetune.loaders.page_locked`.
"""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import torch

from pipetune.decoders.contract import Array
from pipetune.loaders.page_locked import devices_in_use, wait_for_devices

#: A loop that is ahead of its device by more batches than this can wait for the device, which has enough to do.
_AHEAD = 2

#: Gives memory back to whoever writes into it.
GiveBack = Callable[[Any], object]


class AfterCopies:
    """Lends memory to a training loop, and gives it back when no copy from it can be queued any more.

    Args:
        device_index: of the CUDA device that the batches go to.
    """

    def __init__(self, device_index: int) -> None:
        self.device_index = device_index
        self._pid = os.getpid()
        self._dropped: deque[tuple[list[torch.cuda.Event], GiveBack, Any]] = deque()
        """No tensor on it is left; the loop has not asked for a batch since."""
        self._queued: deque[tuple[list[torch.cuda.Event], GiveBack, Any]] = deque()
        """The loop has asked for a batch since; the oldest first."""
        end = weakref.finalize(self, _settle, self._pid, device_index, self._dropped, self._queued)
        end.atexit = False

    def lend(self, view: Any, give_back: GiveBack, what: Any) -> None:
        """Call ``give_back(what)`` some time after ``view``, which the tensors keep alive, is garbage."""
        weakref.finalize(view, self._drop, give_back, what).atexit = False

    def pinned(self, array: Array) -> torch.Tensor:
        """A copy of an array in page-locked memory of torch's; the array itself, lent, where there is none."""
        try:
            with torch.cuda.device(self.device_index):
                return torch.from_numpy(array).pin_memory()
        except RuntimeError:  # the limit of page-locked memory; what is larger has warned of it
            view = array[:]
            self.lend(view, _let_go, array)
            return torch.from_numpy(view)

    def held(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor on the memory of another one on the device; that one is kept until the memory is free."""
        view = _OnDevice()
        view.__cuda_array_interface__ = tensor.__cuda_array_interface__
        self.lend(view, _let_go, tensor)
        return torch.as_tensor(view, device=tensor.device)

    def asked(self) -> None:
        """The training loop asks for a batch: called in its thread. Gives back what is free."""
        if count := len(self._dropped):
            marks = self._marks()
            for _ in range(count):
                earlier, give_back, what = self._dropped.popleft()
                self._queued.append(([*earlier, *marks], give_back, what))
        while self._queued and all(mark.query() for mark in self._queued[0][0]):
            _, give_back, what = self._queued.popleft()
            give_back(what)

    def wait(self) -> bool:
        """Wait for the batch that is free next, if the loop is far ahead; false: it is not. Called as :meth:`asked`.

        Why: a loop that is slower than its loader runs ahead until something stops it, and each batch takes memory.
        """
        if len(self._queued) <= _AHEAD:
            return False
        for mark in self._queued[0][0]:
            mark.synchronize()
        self.asked()
        return True

    def _drop(self, give_back: GiveBack, what: Any) -> None:
        # A finalizer: it may run at any point of the program, in any thread.
        if os.getpid() != self._pid:  # a forked process has references of its own, and no CUDA
            return
        try:
            # An event in a graph that is being captured cannot be asked for; the ones of `asked` have to do.
            marks = [] if torch.cuda.is_current_stream_capturing() else self._marks()
        except RuntimeError:  # the device is lost, which the training loop is told by its own calls
            return
        self._dropped.append((marks, give_back, what))

    def _marks(self) -> list[torch.cuda.Event]:
        """Events behind what is queued now."""
        marks = []
        for index in devices_in_use(self.device_index):
            mark = torch.cuda.Event(blocking=True)
            mark.record(torch.cuda.current_stream(index))
            marks.append(mark)
        return marks


class _OnDevice:
    """Memory on a device, as other libraries describe it to torch, which keeps this object with its tensors."""

    __cuda_array_interface__: dict[str, Any]


def _let_go(what: Any) -> None:
    """Whose memory it is gets it back with the last reference, which was ``what``."""


def _settle(pid: int, device_index: int, *queues: deque[Any]) -> None:
    """The loader is gone and no tensor is left: wait before the memory goes, too."""
    if os.getpid() == pid and any(queues):
        wait_for_devices(device_index)
    for queue in queues:
        queue.clear()
