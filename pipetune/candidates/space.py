"""The candidates of a sweep, and what each setting of a loader is good for. Pure."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

from pipetune.candidates.settings import SETTINGS, ChosenValues, current_name, current_value, has_effect
from pipetune.records.sweep import Candidate
from pipetune.registry import DEFAULT_BACKEND, find_backend, least_workers, loader_for


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """The candidates to choose from: every combination that makes sense."""

    backends: tuple[str, ...]
    workers: tuple[int, ...]
    """Sorted, each once."""
    prefetch: tuple[int, ...]
    """Sorted, each once."""
    batch_size: int
    pin_memory: bool
    default_backend: str = DEFAULT_BACKEND
    """What an untuned script decodes with in this environment."""
    settings: ChosenValues = ()
    """Settings that are varied or fixed; the others have their default."""
    accelerator_decodes: tuple[str, ...] = ()
    """Backends that decode on the accelerator here, in time that the model could have had."""
    usable_cores: float | None = None
    """Of the machine, after affinity and quota; ``None``: not known."""
    excluded: frozenset[Candidate] = frozenset()
    """Candidates that cannot run on this machine (see :mod:`pipetune.candidates.fit`)."""

    def __post_init__(self) -> None:
        # From JSON the values come as lists, and settings may have the names of an earlier version.
        settings = tuple(
            (current_name(name), tuple(current_value(name, value) for value in values))
            for name, values in self.settings
        )
        object.__setattr__(self, "settings", settings)

    def candidate(self, backend: str, workers: int, prefetch: int, **chosen: Any) -> Candidate:
        """The candidate at one point; without workers there is nothing to prefetch.

        Args:
            chosen: values of settings; of the others the first.
        """
        values = {name: choices[0] for name, choices in self.settings}
        return canonical(Candidate(
            backend=backend, num_workers=workers, prefetch_depth=prefetch if workers else 0,
            batch_size=self.batch_size, pin_memory=self.pin_memory, **{**values, **chosen},
        ))  # fmt: skip

    def workers_of(self, backend: str) -> tuple[int, ...]:
        """Worker counts that the backend can have on this machine."""
        least = least_workers(find_backend(backend))
        return tuple(
            count
            for count in self.workers
            if count >= least and any(self._fits(backend, count, depth) for depth in self.prefetch)
        )

    def depth_of(self, backend: str, count: int) -> int:
        """The prefetch depth at which a worker count is tried first: the usual one, or the largest that fits."""
        if self._fits(backend, count, self.usual_prefetch):
            return self.usual_prefetch
        return max((depth for depth in self.prefetch if self._fits(backend, count, depth)), default=self.usual_prefetch)

    def _fits(self, backend: str, count: int, depth: int) -> bool:
        return self.fitting(backend, count, depth) is not None

    def fitting(self, backend: str, count: int, depth: int) -> dict[str, Any] | None:
        """The first values of the settings under which this machine has room for it; ``None``: there is none."""
        if self.candidate(backend, count, depth) not in self.excluded:
            return {}
        names = [name for name, _ in self.settings]
        for values in itertools.product(*(choices for _, choices in self.settings)):
            chosen = dict(zip(names, values, strict=True))
            if self.candidate(backend, count, depth, **chosen) not in self.excluded:
                return chosen
        return None

    @property
    def usual_prefetch(self) -> int:
        """torch's own default (2) where it is among the choices, else the smallest."""
        return 2 if 2 in self.prefetch else self.prefetch[0]

    def grid(self) -> tuple[Candidate, ...]:
        """All candidates, each once."""
        names = [name for name, _ in self.settings]
        points = [
            self.candidate(backend, workers, prefetch, **dict(zip(names, values, strict=True)))
            for backend in self.backends
            for workers in self.workers
            if workers >= least_workers(find_backend(backend))
            for prefetch in self.prefetch
            for values in itertools.product(*(choices for _, choices in self.settings))
        ]
        return tuple(point for point in dict.fromkeys(points) if point not in self.excluded)


def canonical(candidate: Candidate) -> Candidate:
    """The candidate with every setting at its default that has no effect on it, so that nothing is measured twice."""
    changes: dict[str, Any] = {"loader": loader_for(candidate).name}
    for name, setting in SETTINGS.items():
        if name not in changes and getattr(candidate, name) != setting.default and not has_effect(setting, candidate):
            changes[name] = setting.default
    return replace(candidate, **changes)
