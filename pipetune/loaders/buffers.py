"""Batches whose memory is used again once no tensor on it is left.

A new float32 batch of 64 x 3 x 224 x 224 costs 9,400 page faults, most of the time that collating it takes (18 of 21 ms
on a virtual machine with two cores). Reused memory costs none. A batch that is kept is not overwritten, unlike in
loaders that reuse memory after a number of steps: each tensor lies on a numpy view of its own, and the memory is free
again when that view is deleted, with the last tensor on it. Where batches go to a CUDA device the memory is
page-locked, and copies from it have to have ended as well (:mod:`pipetune.loaders.after_copies`).
"""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from pipetune.decoders.contract import Array
from pipetune.decoders.layout import Layout

if TYPE_CHECKING:  # batches of numpy arrays need neither
    import torch

    from pipetune.loaders.after_copies import AfterCopies

#: Longest wait for a batch that is about to become free, and pause between two checks (s). A training loop frees a
#: batch some microseconds after it got the next one, and by then a loader thread may need memory for another.
_MAX_WAIT_S = 50e-3
_CHECK_S = 2e-4


class Buffers:
    """Batches in this process's memory, as many as are needed. Several threads may use it.

    Args:
        enough: number of batches that a training loop needs if it frees each when it gets the next one. More are made
            only after a short wait. 0: the caller is the training loop itself, so nothing becomes free by waiting.
        copies: to a CUDA device, of the batches; ``None``: they go to none.
    """

    def __init__(
        self, layout: Layout, batch_size: int, enough: int = 0, copies: AfterCopies | None = None
    ) -> None:  # fmt: skip
        self._shape = layout.shape(batch_size)
        self._dtype = layout.dtype
        self._enough = enough
        self._copies = copies
        self._made = 0
        # Last in, first out: memory that was just used is still in the processor's cache.
        self._free: deque[Array] = deque()

    def take(self) -> Array:
        """Memory for a batch that is free."""
        if self._copies is not None and not self._enough:
            self._copies.asked()
        checks = round(_MAX_WAIT_S / _CHECK_S) if 0 < self._enough <= self._made else 0
        for left in range(checks, -1, -1):
            # No lock and no condition: a finalizer frees the memory, and it may run at any point.
            try:
                return self._free.pop()
            except IndexError:
                if left:
                    time.sleep(_CHECK_S)
        self._made += 1
        if self._copies is None:
            return np.empty(self._shape, self._dtype)
        from pipetune.loaders.page_locked import locked_array

        return locked_array(self._shape, self._dtype, self._copies.device_index)

    def give_back(self, array: Array) -> None:
        """Free memory that was taken and not lent."""
        self._free.append(array)

    def lend(self, array: Array, count: int) -> torch.Tensor:
        """The first ``count`` samples as a tensor; the memory is free again when the last tensor on it is gone."""
        return _lent(array[:count], self._copies, self._free.append, array)

    def lend_array(self, array: Array, count: int) -> Array:
        """The same as a numpy array: the memory is free again when the last array on it is gone."""
        lease = _Lease(array[:count])
        weakref.finalize(lease, self._free.append, array).atexit = False
        return np.asarray(lease)


class _Lease:
    """What a lent array rests on, and every view of it.

    Why not a view of the memory itself: numpy lets a view of a view rest on the memory that both show, so that the
    first one can be gone while the second is in use. It does not look behind an object of another kind.
    """

    def __init__(self, array: Array) -> None:
        self._array = array
        self.__array_interface__ = array.__array_interface__


class SharedRing:
    """Numbered batches in memory that is shared with loader processes.

    The memory has no name in /dev/shm, so nothing is left there however the process ends.

    Args:
        slots: number of batches. Their memory is taken at once, so that a shortage shows at the start.
        copies: to a CUDA device, of the batches; ``None``: they go to none.

    Raises:
        RuntimeError: /dev/shm has too little space.
    """

    def __init__(self, layout: Layout, batch_size: int, slots: int, copies: AfterCopies | None = None) -> None:
        import torch

        shape = (slots, *layout.shape(batch_size))
        self.memory = torch.empty(shape, dtype=torch.uint8 if layout.uint8 else torch.float32).share_memory_()
        """All slots, one after the other: what worker processes are given."""
        self._arrays: Array = self.memory.numpy()
        self._copies = copies
        if copies is not None:
            from pipetune.loaders.page_locked import page_lock

            page_lock(self._arrays, copies.device_index)
        self._free = deque(reversed(range(slots)))
        self._out: set[int] = set()

    def take(self) -> int | None:
        """A free slot for a worker to fill; ``None``: all are in use. Called where the loop asks for a batch."""
        if self._copies is not None:
            self._copies.asked()
            while not self._free and self._copies.wait():
                pass
        try:
            slot = self._free.pop()
        except IndexError:
            return None
        self._out.add(slot)
        return slot

    def take_back(self) -> None:
        """Free the slots that workers were given and have not delivered, after the workers were stopped."""
        self._free.extend(self._out)
        self._out.clear()

    def lend(self, slot: int, count: int) -> torch.Tensor:
        """The first ``count`` samples of a slot as a tensor; the slot is free when the last tensor on it is gone."""
        self._out.discard(slot)
        return _lent(self._arrays[slot, :count], self._copies, self._free.append, slot)


def _lent(view: Array, copies: AfterCopies | None, give_back: Callable[[Any], None], what: Any) -> torch.Tensor:
    import torch

    # Every tensor on the memory keeps the view alive, and the finalizer keeps the memory.
    if copies is None:
        weakref.finalize(view, give_back, what).atexit = False
    else:
        copies.lend(view, give_back, what)
    return torch.from_numpy(view)
