"""State: what the next step is decided from, and what is known of a backend in it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipetune.candidates.space import Space
from pipetune.records.sweep import Candidate, Goal, Measurement, Outcome
from pipetune.search.pooled import noise_of, pool

#: What to measure, and why.
Step = tuple[Candidate, str]
#: Settings of a loader -> chosen values.
Chosen = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class State:
    """The space, the goal, and one outcome per measured candidate."""

    space: Space
    goal: Goal
    outcomes: Mapping[str, Outcome]
    """By key (see :func:`pipetune.search.pooled.pool`)."""
    noise: float
    """Relative standard deviation between repetitions (see :func:`pipetune.search.pooled.noise_of`)."""

    @classmethod
    def after(cls, space: Space, goal: Goal, outcomes: Sequence[Outcome]) -> State:
        """The state after these outcomes, all of the sweep so far in the order in which they were measured."""
        return cls(space, goal, pool(outcomes, goal), noise_of(outcomes))

    def measurement(self, candidate: Candidate) -> Measurement | None:
        """The candidate's measurement; ``None``: not measured, or failed."""
        outcome = self.outcomes.get(candidate.key)
        return None if outcome is None else outcome.measurement

    def is_open(self, candidate: Candidate) -> bool:
        """Whether the candidate may be measured and has not been."""
        return candidate.key not in self.outcomes and candidate not in self.space.excluded

    def probe(self, backend: str, chosen: Chosen) -> Candidate:
        """The candidate with one worker of a backend, or as few as it can have."""
        counts = self.space.workers_of(backend)
        count = next((count for count in counts if count >= 1), counts[-1])
        return self.at(backend, count, chosen)

    def at(self, backend: str, count: int, chosen: Chosen) -> Candidate:
        """The candidate with so many workers at the default prefetch depth.

        Where it does not fit on this machine with the chosen settings, it has the first settings with which it fits.
        """
        depth = self.space.depth_of(backend, count)
        candidate = self.space.candidate(backend, count, depth, **chosen)
        if candidate not in self.space.excluded:
            return candidate
        return self.space.candidate(backend, count, depth, **(self.space.fitting(backend, count, depth) or {}))

    def points(self, backend: str, chosen: Chosen) -> dict[int, Measurement | None]:
        """Worker count -> measurement at the default prefetch depth, of the measured ones; ``None``: it failed."""
        found = {}
        for count in self.space.workers_of(backend):
            outcome = self.outcomes.get(self.at(backend, count, chosen).key)
            if outcome is not None:
                found[count] = outcome.measurement
        return found

    def probed(self, backend: str, settings: Mapping[str, Chosen]) -> Measurement | None:
        """What a backend's probe with its settings came to; ``None``: it was not measured, or failed."""
        return self.measurement(self.probe(backend, settings.get(backend, {})))

    def by_probe(self, settings: Mapping[str, Chosen]) -> list[str]:
        """Backends whose probe with their settings was measured, fastest first."""
        rates = {}
        for backend in self.space.backends:
            measurement = self.probed(backend, settings) if self.space.workers_of(backend) else None
            if measurement is not None:
                rates[backend] = measurement.samples_per_s
        return sorted(rates, key=lambda backend: -rates[backend])
