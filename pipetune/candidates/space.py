"""Space: the candidates of a sweep. Pure."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from pipetune.augmentation.recipes import DEVICE
from pipetune.candidates.settings import (
    LOADER,
    SETTINGS,
    TRANSFORMS_ON,
    ChosenValues,
    augments,
    can_have_effect,
    current_name,
    current_value,
    has_effect,
)
from pipetune.records.sweep import Candidate
from pipetune.registry import DEFAULT_BACKEND, find_backend, loader_for, min_workers


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """The candidates to choose from: every combination of backend, workers, prefetch depth and settings."""

    backends: tuple[str, ...]
    workers: tuple[int, ...]
    """Sorted, each once."""
    prefetch: tuple[int, ...]
    """Sorted, each once."""
    batch_size: int
    pin_memory: bool
    default_backend: str = DEFAULT_BACKEND
    """The backend of an untuned script in this environment."""
    settings: ChosenValues = ()
    """Settings that are varied or fixed; the others have their default."""
    accelerator_decodes: tuple[str, ...] = ()
    """Backends that decode on the accelerator of this sweep, in time that the model could have had."""
    usable_cores: float | None = None
    """Cores of the machine, after affinity and quota; ``None``: not known."""
    ranks: int = 1
    """Training processes that are measured at the same time and share the cores; each has as many workers."""
    untuned: Candidate | None = None
    """What gains are stated against; ``None``: PyTorch's defaults with the default backend."""
    confirm_alone: bool = False
    """Each measurement that decides is dear: the best candidate is compared with the untuned one only."""
    alternates: bool = False
    """Before that, candidates can take turns in one training that runs, which is cheap."""
    restart_remedies: ChosenValues = ()
    """Settings that matter where workers start anew with each epoch, the script's own value first. Only the script as
    it is and the best candidate are tried with them (:mod:`pipetune.search.restarts`)."""
    excluded: frozenset[Candidate] = frozenset()
    """Candidates that cannot run on this machine (see :mod:`pipetune.candidates.fit`)."""

    def __post_init__(self) -> None:
        # From JSON the values come as lists, and settings may have the names of an earlier version.
        settings = tuple(
            (current_name(name), tuple(current_value(name, value) for value in values))
            for name, values in self.settings
        )
        object.__setattr__(self, "settings", settings)
        remedies = tuple((name, tuple(values)) for name, values in self.restart_remedies)
        object.__setattr__(self, "restart_remedies", remedies)

    def candidate(self, backend: str, workers: int, prefetch: int, **chosen: Any) -> Candidate:
        """The candidate at one point; without workers there is nothing to prefetch.

        Args:
            chosen: values of settings; of the others the first.
        """
        values = {name: choices[0] for name, choices in self.settings}
        return self.canonical(Candidate(
            backend=backend, num_workers=workers, prefetch_depth=prefetch if workers else 0,
            batch_size=self.batch_size, pin_memory=self.pin_memory, **{**values, **chosen},
        ))  # fmt: skip

    def canonical(self, candidate: Candidate) -> Candidate:
        """The candidate as :func:`canonical` has it, augmented where its loader can do so.

        A loader that decodes inside of a library leaves images as they are, so they are augmented on the accelerator.
        """
        candidate = canonical(candidate)
        if not augments(candidate) and any(name == TRANSFORMS_ON for name, _ in self.settings):
            return replace(candidate, transforms_on=DEVICE)
        return candidate

    def workers_of(self, backend: str) -> tuple[int, ...]:
        """The worker counts that the backend can have on this machine."""
        fewest = min_workers(find_backend(backend))
        return tuple(
            count
            for count in self.workers
            if count >= fewest and any(self._fits(backend, count, depth) for depth in self.prefetch)
        )

    def depth_of(self, backend: str, count: int) -> int:
        """The prefetch depth at which a worker count is tried first: the default, or the largest one that fits."""
        if self._fits(backend, count, self.default_prefetch):
            return self.default_prefetch
        fitting = [depth for depth in self.prefetch if self._fits(backend, count, depth)]
        return max(fitting, default=self.default_prefetch)

    def _fits(self, backend: str, count: int, depth: int) -> bool:
        return self.fitting(backend, count, depth) is not None

    def fitting(self, backend: str, count: int, depth: int) -> dict[str, Any] | None:
        """The first values of the settings with which it fits on this machine; ``None``: it fits with none."""
        if self.candidate(backend, count, depth) not in self.excluded:
            return {}
        names = [name for name, _ in self.settings]
        for values in itertools.product(*(choices for _, choices in self.settings)):
            chosen = dict(zip(names, values, strict=True))
            if self.candidate(backend, count, depth, **chosen) not in self.excluded:
                return chosen
        return None

    @property
    def default_prefetch(self) -> int:
        """torch's own default (2) where it is among the choices, else the smallest."""
        return 2 if 2 in self.prefetch else self.prefetch[0]

    def grid(self) -> tuple[Candidate, ...]:
        """All candidates, each once."""
        return tuple(_members(self))

    def has(self, candidate: Candidate) -> bool:
        """Whether the candidate is one of the grid, or one of them with a remedy for restarts."""
        plain = {name: values[0] for name, values in self.restart_remedies if getattr(candidate, name) in values}
        return (replace(candidate, **plain) if plain else candidate) in _members(self)


#: Spaces whose grid is kept: the search asks for the same one many times between two measurements.
_KEPT_GRIDS = 8


@functools.lru_cache(maxsize=_KEPT_GRIDS)
def _members(space: Space) -> dict[Candidate, None]:
    """The grid in its order; as keys, because membership is asked for as well."""
    points = (
        space.candidate(backend, workers, prefetch, **values)
        for backend in space.backends
        for workers in space.workers
        if workers >= min_workers(find_backend(backend))
        for prefetch in space.prefetch
        for values in _combinations(space.candidate(backend, workers, prefetch), space.settings)
    )
    return dict.fromkeys(point for point in points if point not in space.excluded)


def _combinations(candidate: Candidate, settings: ChosenValues) -> Iterator[dict[str, Any]]:
    """Values of the settings, the last one changing fastest.

    A setting that has no effect with the values before it is not varied. Why: `--vary all` of 12 backends with 4 worker
    counts gives 15,822 candidates, and ten times as many combinations.
    """
    if not settings:
        yield {}
        return
    (name, values), *later = settings
    if not can_have_effect(SETTINGS[name], candidate, [other for other, _ in later]):
        values = values[:1]
    for value in values:
        same = getattr(candidate, name) == value
        for others in _combinations(candidate if same else replace(candidate, **{name: value}), tuple(later)):
            yield {name: value, **others}


def canonical(candidate: Candidate) -> Candidate:
    """The candidate with every setting at its default that has no effect on it, so that nothing is measured twice."""
    changes: dict[str, Any] = {}
    loader = loader_for(candidate).name
    if loader != candidate.loader:
        changes[LOADER] = loader
    for name, setting in SETTINGS.items():
        value = getattr(candidate, name)
        if name != LOADER and value != setting.default and not has_effect(setting, candidate):
            changes[name] = setting.default
    return replace(candidate, **changes) if changes else candidate
