"""Names of many files in little memory: their bytes one after the other, and where each ends.

A name of 20 characters takes about 30 bytes this way, and about 70 as a string in a list.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Sequence
from typing import overload


class Names(Sequence[str]):
    """Names in their order. They cannot be changed."""

    def __init__(self, names: Iterable[str]) -> None:
        self._bytes = bytearray()
        self._ends = array("q", [0])
        for name in names:
            self._bytes += os.fsencode(name)  # whatever bytes the name has
            self._ends.append(len(self._bytes))

    def __len__(self) -> int:
        return len(self._ends) - 1

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> list[str]: ...
    def __getitem__(self, at: int | slice) -> str | list[str]:
        if isinstance(at, slice):
            return [self[number] for number in range(*at.indices(len(self)))]
        place = at if at >= 0 else at + len(self)
        if not 0 <= place < len(self):
            raise IndexError(f"name {at} of {len(self)}")
        return os.fsdecode(bytes(self._bytes[self._ends[place] : self._ends[place + 1]]))
