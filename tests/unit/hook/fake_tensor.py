"""A tensor as the hook looks at it, without torch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


class Tensor:
    """Numbers that can be changed in place, which raises ``_version`` as torch does."""

    dtype = "float32"
    device = SimpleNamespace(type="cpu")

    def __init__(self, *values: float, pinned: bool = False) -> None:
        self.values = list(values)
        self._version = 0
        self._pinned = pinned

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.values),)

    def untyped_storage(self) -> Any:
        return self.values

    def numel(self) -> int:
        return len(self.values)

    def element_size(self) -> int:
        return 4

    def mul_(self, factor: float) -> None:
        self.values[:] = [factor * value for value in self.values]
        self._version += 1

    def detach(self) -> Tensor:
        return self

    def clone(self) -> Tensor:
        return Tensor(*self.values)

    def is_pinned(self) -> bool:
        return self._pinned

    def pin_memory(self) -> Tensor:
        return Tensor(*self.values, pinned=True)

    def __eq__(self, other: object) -> Any:
        assert isinstance(other, Tensor)
        same = self.values == other.values
        return SimpleNamespace(all=lambda: same)

    __hash__ = object.__hash__
