"""Batches that are kept and handed to the training loop again and again: what it takes when batches are always ready.

Containers are made anew each time, because some loops take things out of them. A tensor that the loop has changed in
place (normalised, say) is handed out as a copy from then on.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

#: So many batches are kept at most, and so many bytes.
MOST_BATCHES, MOST_BYTES = 8, 1 << 30


class KeptBatches:
    """The newest batches of a loader."""

    def __init__(self, most: int = MOST_BATCHES, most_bytes: int = MOST_BYTES) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._batches: deque[tuple[Any, int, list[int]]] = deque()
        """Each with its size (bytes) and the versions of its tensors."""
        self._next = 0
        self.changed_in_place = False
        """The loop changes batches in place."""

    def __len__(self) -> int:
        return len(self._batches)

    def keep(self, batch: Any) -> Any:
        """Keep a batch; returns what the loop gets instead of it."""
        tensors = tensors_of(batch)
        self._batches.append((batch, sum(map(_bytes_of, tensors)), _versions_of(tensors)))
        while len(self._batches) > 1 and (
            len(self._batches) > self._most or sum(size for _, size, _ in self._batches) > self._most_bytes
        ):
            self._batches.popleft()
        return rebuilt(batch, lambda tensor: tensor)

    def hand_out(self) -> Any:
        """The next kept batch, in turn."""
        batch, _, versions = self._batches[self._next % len(self._batches)]
        self._next += 1
        if not self.changed_in_place:
            self.changed_in_place = _versions_of(tensors_of(batch)) != versions
        return rebuilt(batch, _copy if self.changed_in_place else lambda tensor: tensor)


def rebuilt(batch: Any, leaf: Callable[[Any], Any]) -> Any:
    """The batch in new containers of the same kinds, with ``leaf`` applied to each tensor in it."""
    if _is_tensor(batch):
        return leaf(batch)
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(rebuilt(item, leaf) for item in batch))
    if type(batch) in (list, tuple):
        return type(batch)(rebuilt(item, leaf) for item in batch)
    if isinstance(batch, dict):
        try:
            made = batch.copy() if type(batch) is dict else copy.copy(batch)  # a default factory and the like stay
            made.update((name, rebuilt(item, leaf)) for name, item in batch.items())
        except Exception:  # a class of the user's that cannot be copied
            return batch
        return made
    if isinstance(batch, Mapping) and hasattr(batch, "data") and isinstance(batch.data, dict):  # BatchEncoding …
        try:
            made_of: Any = type(batch)
            return made_of(rebuilt(dict(batch.data), leaf))
        except Exception:  # a class of the user's with another constructor
            return batch
    return batch


def tensors_of(batch: Any) -> list[Any]:
    """All tensors in a batch, at whatever depth."""
    if _is_tensor(batch):
        return [batch]
    if isinstance(batch, Mapping):
        return [tensor for item in batch.values() for tensor in tensors_of(item)]
    if isinstance(batch, (list, tuple)):
        return [tensor for item in batch for tensor in tensors_of(item)]
    return []


def _versions_of(tensors: list[Any]) -> list[int]:
    return [int(getattr(tensor, "_version", 0)) for tensor in tensors]


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "untyped_storage") and hasattr(value, "_version")


def _copy(tensor: Any) -> Any:
    copied = tensor.detach().clone()
    return copied.pin_memory() if tensor.device.type == "cpu" and tensor.is_pinned() else copied


def _bytes_of(tensor: Any) -> int:
    try:
        return int(tensor.numel() * tensor.element_size())
    except (RuntimeError, AttributeError):  # a tensor subclass without storage
        return 0
