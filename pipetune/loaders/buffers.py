"""Batches whose memory is used again once nobody holds them any more.

A fresh float32 batch of 64 x 3 x 224 x 224 costs 9,400 page faults, most of what it takes to collate it (measured on a
virtual machine with two cores: 18 of 21 ms). Reused memory has none. Unlike in loaders that overwrite a batch after so
many steps, a batch that is kept stays as it is: its tensor lies on a numpy view that is made for this one loan, and
what frees the memory is the end of that view, when the last tensor on it is gone.
"""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from pipetune.decoders.contract import Array
from pipetune.decoders.layout import Layout

#: So long is a batch waited for that is about to come back, and so long between two looks (s). A training loop lets go
#: of a batch some microseconds after it got the next one, and by then a loader thread may have begun another.
_PATIENCE_S = 50e-3
_LOOK_S = 2e-4


class Buffers:
    """Batches in this process's own memory, as many as are needed. May be used by several threads.

    Args:
        usual: as many suffice for a training loop that lets go of a batch when it gets the next one. Further ones are
            made after a short wait only. 0: whoever takes one is the training loop itself, so waiting is in vain.
    """

    def __init__(self, layout: Layout, batch_size: int, usual: int = 0) -> None:
        self._shape = layout.shape(batch_size)
        self._dtype = layout.dtype
        self._usual = usual
        self._made = 0
        # Last in, first out: what was just used is still in the processor's cache.
        self._free: deque[Array] = deque()

    def take(self) -> Array:
        """Memory for a batch that nobody uses."""
        looks = round(_PATIENCE_S / _LOOK_S) if 0 < self._usual <= self._made else 0
        for left in range(looks, -1, -1):
            # No lock and no condition: what gives memory back is a finalizer, which may run anywhere.
            try:
                return self._free.pop()
            except IndexError:
                if left:
                    time.sleep(_LOOK_S)
        self._made += 1
        return np.empty(self._shape, self._dtype)

    def give_back(self, array: Array) -> None:
        """It was taken and is not to be lent."""
        self._free.append(array)

    def lend(self, array: Array, count: int) -> torch.Tensor:
        """The first ``count`` samples as a tensor; the memory is free again when the last tensor on it is gone."""
        return _lent(array[:count], self._free.append, array)


class SharedRing:
    """So many batches in memory that loader processes share with us; they are known by number.

    The memory has no name in /dev/shm, so nothing is left there however we end.

    Args:
        slots: number of batches. Their memory is taken at once, so that none is missing later.

    Raises:
        RuntimeError: /dev/shm has no room for it.
    """

    def __init__(self, layout: Layout, batch_size: int, slots: int) -> None:
        shape = (slots, *layout.shape(batch_size))
        self.memory = torch.empty(shape, dtype=torch.uint8 if layout.uint8 else torch.float32).share_memory_()
        """What worker processes are given: all slots, one after the other."""
        self._arrays: Array = self.memory.numpy()
        self._free = deque(reversed(range(slots)))
        self._out: set[int] = set()

    def take(self) -> int | None:
        """A slot that nobody uses, for a worker to fill; ``None``: all are in use."""
        try:
            slot = self._free.pop()
        except IndexError:
            return None
        self._out.add(slot)
        return slot

    def take_back(self) -> None:
        """The slots that workers were given and have not delivered are free: the workers have been stopped."""
        self._free.extend(self._out)
        self._out.clear()

    def lend(self, slot: int, count: int) -> torch.Tensor:
        """The first ``count`` samples of a slot as a tensor; the slot is free when the last tensor on it is gone."""
        self._out.discard(slot)
        return _lent(self._arrays[slot, :count], self._free.append, slot)


def _lent(view: Array, give_back: Callable[[Any], None], what: Any) -> torch.Tensor:
    # The tensor's memory holds the view, whatever other tensors are made of it; the finalizer holds the memory.
    weakref.finalize(view, give_back, what).atexit = False
    return torch.from_numpy(view)
