"""The candidates of a sweep, and what each setting of a loader is good for. Pure."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

from pipetune.candidates.settings import SETTINGS, THREADS, ChosenValues, Setting, has_effect, loader_of
from pipetune.records.sweep import Candidate
from pipetune.registry import DEFAULT_BACKEND, find_backend


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
        least = 1 if find_backend(backend).in_process_workers else 0
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
            if workers or not find_backend(backend).in_process_workers
            for prefetch in self.prefetch
            for values in itertools.product(*(choices for _, choices in self.settings))
        ]
        return tuple(point for point in dict.fromkeys(points) if point not in self.excluded)


def canonical(candidate: Candidate) -> Candidate:
    """The candidate with every setting at its default that has no effect on it, so that nothing is measured twice."""
    without_effect = {
        name: setting.default
        for name, setting in SETTINGS.items()
        if getattr(candidate, name) != setting.default and not _counts(setting, candidate)
    }
    return replace(candidate, **without_effect) if without_effect else candidate


def _counts(setting: Setting, candidate: Candidate) -> bool:
    if setting.name == "worker_kind":
        return loader_of(candidate) == THREADS
    return has_effect(setting, candidate)
