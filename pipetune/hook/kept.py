"""Batches that are kept and handed to the training loop again and again: what it takes when batches are always ready.

Containers are made anew each time, because some loops take things out of them. A tensor that the loop has changed in
place (normalised, say) is handed out as a copy from then on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from itertools import cycle, islice
from typing import Any

from pipetune.hook.resized import CannotResizeError, bytes_of, resized
from pipetune.usercode.batches import size_of
from pipetune.usercode.containers import with_items

#: So many batches are kept at most, and so many bytes.
MOST_BATCHES, MOST_BYTES = 8, 1 << 30


class KeptBatches:
    """The newest batches of a loader."""

    def __init__(self, most: int = MOST_BATCHES, most_bytes: int = MOST_BYTES) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._batches: deque[tuple[Any, int, list[int]]] = deque()
        """Each with its size (bytes) and the versions of its tensors."""
        self._next = 0
        self._resized: list[tuple[Any, int, list[int]]] = []
        """What is handed out instead of them."""
        self._size: int | None = None
        self._resize_again: Callable[[], None] = lambda: None
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

    def replace(self, batches: Iterable[Any]) -> None:
        """Keep these in place of those that are kept; they are handed out in the size that was asked for.

        Raises:
            CannotResizeError: as :meth:`resize`; those before stay.
        """
        before = deque(self._batches), self._resized, self._size
        for number, batch in enumerate(batches):
            if number == 0:
                self._batches.clear()
            self.keep(batch)
        self._size = None
        try:
            self._resize_again()
        except CannotResizeError:
            self._batches, self._resized, self._size = before
            raise

    def resize(self, size: int | None, own: int | None = None, ranks: int = 1) -> None:
        """Hand out batches of so many samples from now on, made of those that are kept; ``None``: as they are.

        Args:
            own: samples that the script's batches have; others, as the last of an epoch, are left out.
            ranks: see :func:`pipetune.hook.resized.resized`.

        Raises:
            CannotResizeError: their samples cannot be told apart, or the host has no memory for them.
        """
        if size == self._size:
            return
        self._resized, self._size = [], None
        self._resize_again = lambda: self.resize(size, own, ranks)
        if size is None:
            return
        whole = [batch for batch, _, _ in self._batches if own is None or size_of(batch) == own]
        if not whole:
            rows = size_of(self._batches[0][0])
            raise CannotResizeError(f"the batches of a loader with batch size {own} have {rows} rows")
        made: list[tuple[Any, int, list[int]]] = []
        for batch in islice(cycle(whole), self._most):
            another = resized(batch, size, ranks)
            each = bytes_of(another)
            made.append((another, each, _versions_of(tensors_of(another))))
            if each * (len(made) + 1) > self._most_bytes:
                break
        self._resized, self._size = made, size

    def hand_out(self) -> Any:
        """The next kept batch, in turn."""
        batches = self._resized or self._batches
        batch, _, versions = batches[self._next % len(batches)]
        self._next += 1
        if not self.changed_in_place:
            self.changed_in_place = _versions_of(tensors_of(batch)) != versions
        return rebuilt(batch, _copy if self.changed_in_place else lambda tensor: tensor)


def rebuilt(batch: Any, leaf: Callable[[Any], Any]) -> Any:
    """The batch in new containers of the same kinds, with ``leaf`` applied to each tensor in it."""
    return leaf(batch) if _is_tensor(batch) else with_items(batch, lambda item: rebuilt(item, leaf))


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
