"""The loaders that a process has made, each with its identity. Imports no torch."""

from __future__ import annotations

import weakref
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

from pipetune.hook.describe import Site, class_name, made_by_framework, site_of
from pipetune.records.script import LoaderIdentity


@dataclass(frozen=True, slots=True)
class Known:
    """One loader: where it was made and who it is."""

    identity: LoaderIdentity
    site: Site


class Loaders:
    """Every loader from its construction on."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Any], Known]] = {}
        self._of_dataset: list[tuple[Callable[[], Any], Known]] = []
        self._made: Counter[tuple[str, str, str, str]] = Counter()
        self._calls: Counter[tuple[tuple[str, str, str, str], tuple[int, int]]] = Counter()
        self.count = 0
        """Loaders that were made so far."""

    def identify(self, frame: FrameType | None, dataset: Any, sampler: str) -> Known | None:
        """Who a loader is that is being made, before its constructor has run.

        Args:
            frame: that called the constructor.
            sampler: name of the class of its sampler.
        """
        self.count += 1
        if made_by_framework(frame):  # made again from a loader of the script's
            made = [known for there, known in self._of_dataset if there() is dataset]
            alike = [known for known in made if known.identity.sampler == sampler]
            if made:
                return (alike or made)[-1]
        site = site_of(frame)
        if site is None:
            return None
        key = (site.file, site.function, class_name(dataset), sampler)
        identity = LoaderIdentity(
            file=site.file, function=site.function, dataset=key[2], sampler=sampler, ordinal=self._made[key],
            position=site.position,
        )  # fmt: skip
        self._made[key] += 1
        self._calls[(key, site.position)] += 1
        known = Known(identity, site)
        # One for each data set and call: some scripts make a loader for each step.
        self._of_dataset = [
            (there, one)
            for there, one in self._of_dataset
            if (at := there()) is not None and (at is not dataset or one.identity.key != key)
        ]
        self._of_dataset.append((reference_to(dataset), known))
        return known

    def alone_at(self, known: Known) -> bool:
        """Whether the call that made a loader has made no other one."""
        return self._calls[(known.identity.key, known.site.position)] == 1

    def add(self, loader: Any, known: Known) -> None:
        """Remember a loader that was made."""
        number = id(loader)
        self._known[number] = (weakref.ref(loader, lambda _: self._known.pop(number, None)), known)

    def of(self, loader: Any) -> Known | None:
        """Who a loader is; ``None``: it was made before we were there, or by unpickling."""
        found = self._known.get(id(loader))
        return found[1] if found is not None and found[0]() is loader else None


class _Kept:
    """Something of which there are no weak references."""

    def __init__(self, value: Any) -> None:
        self.value = value


#: The newest of those. All of them would be a leak in a script that makes a loader of a new list again and again.
_KEPT: deque[_Kept] = deque(maxlen=8)


def reference_to(value: Any) -> Callable[[], Any]:
    """Gives the value as long as it exists; a list, of which there are no weak references, as long as it is kept."""
    try:
        return weakref.ref(value)
    except TypeError:
        kept = _Kept(value)
        _KEPT.append(kept)
        there = weakref.ref(kept)
        return lambda: None if (found := there()) is None else found.value
