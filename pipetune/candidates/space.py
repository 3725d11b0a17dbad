"""The candidates of a sweep, and what each setting of a loader is good for. Pure."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

from pipetune.candidates.settings import KNOBS, Settings
from pipetune.records.sweep import Candidate
from pipetune.registry import DEFAULT_BACKEND, OWN, find_backend


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
    settings: Settings = ()
    """Knobs that are varied or fixed; the others are as usual."""
    accelerator_decodes: tuple[str, ...] = ()
    """Backends that decode on the accelerator here, in time that the model could have had."""
    usable_cores: float | None = None
    """Of the machine, after affinity and quota; ``None``: not known."""
    excluded: frozenset[Candidate] = frozenset()
    """Candidates that cannot run on this machine (see :mod:`pipetune.candidates.fit`)."""

    def candidate(self, backend: str, workers: int, prefetch: int, **chosen: Any) -> Candidate:
        """The candidate at one point; without workers there is nothing to prefetch.

        Args:
            chosen: values of knobs; of the others the first.
        """
        values = {name: choices[0] for name, choices in self.settings}
        return sensible(Candidate(
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
        """The first values of the knobs under which this machine has room for it; ``None``: there is none."""
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


def sensible(candidate: Candidate) -> Candidate:
    """The candidate with every setting as usual that has no effect on it, so that nothing is measured twice."""
    backend = find_backend(candidate.backend)
    usual: dict[str, Any] = {}
    inside = backend.in_process_workers
    threads = candidate.worker_kind == "thread" and backend.threads and candidate.num_workers > 0
    processes = candidate.num_workers > 0 and not inside and not threads
    if backend.name == OWN.name:
        usual = {
            name: knob.values[0] for name, knob in KNOBS.items() if name not in ("allocator", "persistent_workers")
        }
    if not threads:
        usual["worker_kind"] = "process"
    if threads or inside:
        usual["reuse_buffers"] = False  # threads always do
    if not (threads or inside or candidate.reuse_buffers):
        usual["channels_last"] = False
    if not processes:
        usual |= {"start_method": "fork", "persistent_workers": True}
    if not (processes or threads):
        usual["in_order"] = True
    if not inside:
        usual["hw_decoder_load"] = None
    return replace(candidate, **usual)
