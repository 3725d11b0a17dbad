"""What probes tell: one worker of each backend, and of the fastest one with other settings of a loader. Pure.

One probe per backend with one worker, the PyTorch default at a random place among them; on the fastest of them the
other settings one after the other (threads, bytes, reused memory, allocator), each kept where it gains; the other
backends once more with what was kept, where that may make them as cheap. A backend is left out when another one does
the same for clearly less CPU time.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipetune.candidates.space import Space
from pipetune.records.sweep import Candidate, Goal, Measurement, Outcome
from pipetune.registry import find_backend, native_workers
from pipetune.search.choice import CPU_NOISE, cores_decide, cores_slack, noise_of
from pipetune.search.pooled import baseline, meets
from pipetune.stats.noise import difference_by_chance

#: More workers that gain less than this share are past the knee.
KNEE_GAIN = 0.05
#: CPU time per image that is less by this share is less.
CPU_GAIN = 0.03
#: A backend whose probe needs this much more CPU time per sample than another's cannot be faster on the same cores, nor
#: cheaper. Decoders do change places between one worker and many, by less. Where repetitions scatter so much that two
#: probes of one decoder may differ by more, it takes that much more: a decoder is not left out by chance.
OUTDONE = 0.12
#: Settings may gain more on a backend's probe than on the lead's, by this share of the CPU time left. In six grids
#: of benchmarks/results/search_grids-*.json (2 cores) decoders came out 38 % above to 51 % below what the lead's saving
#: made one expect; 3 of 36 were further below than this, which OUTDONE has to make up for.
HOPED = 0.4

#: What to measure, and why.
Step = tuple[Candidate, str]
Settings = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Seen:
    """What a step is decided from."""

    space: Space
    goal: Goal
    known: Mapping[str, Outcome]
    """By key (see :func:`pipetune.search.pooled.known`)."""

    def measurement(self, candidate: Candidate) -> Measurement | None:
        """What is known of it."""
        outcome = self.known.get(candidate.key)
        return None if outcome is None else outcome.measurement

    @property
    def noise(self) -> float:
        """Relative standard deviation of repetitions on this machine."""
        return noise_of(self.known.values())

    def is_open(self, candidate: Candidate) -> bool:
        """It may be measured and has not been."""
        return candidate.key not in self.known and candidate not in self.space.excluded

    def probe(self, backend: str, chosen: Settings) -> Candidate:
        """One worker of a backend, or as few as it can have."""
        counts = self.space.workers_of(backend)
        count = next((count for count in counts if count >= 1), counts[-1])
        return self.at(backend, count, chosen)

    def at(self, backend: str, count: int, chosen: Settings) -> Candidate:
        """So many workers at the usual prefetch depth; with other settings where these do not fit."""
        depth = self.space.depth_of(backend, count)
        candidate = self.space.candidate(backend, count, depth, **chosen)
        if candidate not in self.space.excluded:
            return candidate
        return self.space.candidate(backend, count, depth, **(self.space.fitting(backend, count, depth) or {}))

    def points(self, backend: str, chosen: Settings) -> dict[int, Measurement | None]:
        """What is known per worker count at the usual prefetch depth; ``None``: it failed."""
        found = {}
        for count in self.space.workers_of(backend):
            outcome = self.known.get(self.at(backend, count, chosen).key)
            if outcome is not None:
                found[count] = outcome.measurement
        return found

    def by_probe(self, settings: Mapping[str, Settings]) -> list[str]:
        """Backends whose probe with their settings was measured, fastest first."""
        rates = {}
        for backend in self.space.backends:
            if self.space.workers_of(backend):
                measurement = self.measurement(self.probe(backend, settings.get(backend, {})))
                if measurement is not None:
                    rates[backend] = measurement.samples_per_s
        return sorted(rates, key=lambda backend: -rates[backend])


def next_probe(seen: Seen, seed: int) -> tuple[Step | None, dict[str, Settings]]:
    """The next probe, ``None`` when there is none left; and the settings that are best for each backend so far."""
    for candidate in opening(seen, seed):
        if candidate.key not in seen.known:
            return (candidate, _why_opening(seen, candidate)), {}
    ranked = seen.by_probe({})
    if not ranked:
        return None, {}
    lead = lead_of(ranked)
    chosen, untried = tune(seen, lead)
    if untried is not None:
        why = f"another setting, on {lead}'s probe: {_differences(untried, seen.probe(lead, chosen))}"
        return (untried, why), {}
    settings = settings_of(seen, ranked, chosen)
    for backend in ranked:
        again = seen.probe(backend, chosen)
        if seen.is_open(again) and outdone(seen, backend, settings, _hope(seen, backend, lead, chosen)) is None:
            return (again, f"{backend}'s probe once more, with what gained on {lead}'s"), settings
    return None, settings


def opening(seen: Seen, seed: int) -> list[Candidate]:
    """The probes, and the baseline at a random place among them."""
    space = seen.space
    probes = [seen.probe(backend, {}) for backend in space.backends if space.workers_of(backend)]
    found = list(dict.fromkeys((baseline(space), *probes)))
    random.Random(seed).shuffle(found)
    return found


def _why_opening(seen: Seen, candidate: Candidate) -> str:
    if candidate == baseline(seen.space):
        return "PyTorch's default, which gains are stated against"
    return f"a probe of {candidate.backend}"


def lead_of(ranked: Sequence[str]) -> str:
    """On which settings are tried: the fastest one whose workers are ours, to which most of them mean something."""
    return next((backend for backend in ranked if not native_workers(find_backend(backend))), ranked[0])


def tune(seen: Seen, backend: str) -> tuple[dict[str, Any], Candidate | None]:
    """The settings that gain on a backend's probe, knob by knob; and a candidate to measure before that is known."""
    chosen: dict[str, Any] = {}
    for name, values in seen.space.settings:
        options = [{**chosen, name: value} for value in values]
        for option in options[1:]:
            candidate = seen.probe(backend, option)
            if seen.is_open(candidate):
                return chosen, candidate
        chosen = dict(_better(seen, backend, options))
    return chosen, None


def doubtful(seen: Seen, lead: str, chosen: Settings) -> list[str]:
    """Which of the chosen settings gained no more on the lead's probe than chance may have (95 %)."""
    chance = difference_by_chance(max(seen.noise, CPU_NOISE))
    found, before = [], dict[str, Any]()
    for name, values in seen.space.settings:
        if chosen.get(name, values[0]) == values[0]:
            continue
        kept = {**before, name: chosen[name]}
        old, new = (seen.measurement(seen.probe(lead, settings)) for settings in (before, kept))
        if old is not None and new is not None and not _certainly_gains(new, old, chance):
            found.append(name)
        before = kept
    return found


def unsettled(seen: Seen, lead: str, chosen: Settings) -> dict[str, Any]:
    """Unusual values that were not chosen, though on the lead's probe they lost no more than chance may have done.

    Of each setting the one that was the fastest; none of a setting that means nothing to the lead.
    """
    chance = difference_by_chance(max(seen.noise, CPU_NOISE))
    found, before = {}, dict[str, Any]()
    for name, values in seen.space.settings:
        kept = chosen.get(name, values[0])
        usual, reference = seen.probe(lead, before), seen.measurement(seen.probe(lead, before))
        tried = {}
        for value in values[1:] if kept == values[0] else ():
            probe = seen.probe(lead, {**before, name: value})
            measurement = None if probe == usual else seen.measurement(probe)
            if measurement is None or reference is None or _certainly_gains(reference, measurement, chance):
                continue
            tried[value] = measurement.samples_per_s
        if tried:
            found[name] = max(tried, key=lambda value: tried[value])
        before = {**before, name: kept}
    return found


def _certainly_gains(new: Measurement, old: Measurement, chance: float) -> bool:
    faster = new.samples_per_s > (1 + chance) * old.samples_per_s
    ours, theirs = old.cpu_s_per_1000_samples, new.cpu_s_per_1000_samples
    return faster or (ours is not None and theirs is not None and ours > (1 + chance) * theirs)


def settings_of(seen: Seen, ranked: Sequence[str], chosen: Settings) -> dict[str, Settings]:
    """Each backend's settings: those that gained on the lead's probe, where they are better on its own, too."""
    return {backend: _better(seen, backend, ({}, chosen)) for backend in ranked}


def _better(seen: Seen, backend: str, options: Sequence[Settings]) -> Settings:
    """The option whose probe is clearly better than those before it: faster, or cheaper where both suffice."""
    best = options[0]
    for option in options[1:]:
        ours, theirs = (seen.measurement(seen.probe(backend, chosen)) for chosen in (best, option))
        if theirs is not None and (ours is None or _gains(theirs, ours, seen)):
            best = option
    return best


def _gains(new: Measurement, old: Measurement, seen: Seen) -> bool:
    if meets(new, seen.goal) and meets(old, seen.goal):
        if new.cores_used is None or old.cores_used is None:
            return False
        return old.cores_used - new.cores_used > cores_slack(new.cores_used, seen.noise)
    if new.samples_per_s > (1 + KNEE_GAIN) * old.samples_per_s:
        return True
    # With as many workers as it takes, less CPU time per image is what counts.
    ours, theirs = old.cpu_s_per_1000_samples, new.cpu_s_per_1000_samples
    cheaper = ours is not None and theirs is not None and theirs < (1 - CPU_GAIN) * ours
    return cheaper and new.samples_per_s > (1 - CPU_GAIN) * old.samples_per_s


def _hope(seen: Seen, backend: str, lead: str, chosen: Settings) -> float | None:
    """CPU seconds per 1000 samples that a backend may come down to with what gained on the lead's probe.

    Settings save about as much per image with one decoder as with another: what is left is the decoding.
    """
    costs = [
        None if m is None else m.cpu_s_per_1000_samples
        for m in (
            seen.measurement(seen.probe(name, kept)) for name, kept in ((backend, {}), (lead, {}), (lead, chosen))
        )
    ]
    if costs[0] is None or costs[1] is None or costs[2] is None:
        return None
    return max(0.0, costs[0] - max(0.0, costs[1] - costs[2])) * (1 - HOPED)


def outdone(seen: Seen, backend: str, settings: Mapping[str, Settings], hoped: float | None = None) -> str | None:
    """Why a backend is out: another one's probe needs clearly less CPU time per sample, and it did not fail since.

    Args:
        hoped: CPU seconds per 1000 samples that its probe may need with other settings.
    """
    costs = {}
    own = seen.probe(backend, {})
    for name, chosen in settings.items():
        if name != backend and not cores_decide(seen.probe(name, chosen), own, seen.goal, seen.space):
            continue
        probe = seen.measurement(seen.probe(name, chosen))
        if probe is not None and probe.cpu_s_per_1000_samples and None not in seen.points(name, chosen).values():
            costs[name] = probe.cpu_s_per_1000_samples
    if hoped is not None and backend in costs:
        costs[backend] = min(hoped, costs[backend])
    least = min(costs, key=lambda name: costs[name], default=backend)
    if costs.get(backend, 0) <= (1 + max(OUTDONE, difference_by_chance(seen.noise))) * costs.get(least, 0):
        return None
    return f"its probe needed {100 * (costs[backend] / costs[least] - 1):.0f} % more CPU time per image than {least}'s"


def _differences(one: Candidate, other: Candidate) -> str:
    names = [name for name in one.__slots__ if getattr(one, name) != getattr(other, name)]
    return ", ".join(f"{name} {getattr(one, name)}" for name in names)
