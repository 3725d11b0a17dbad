"""Pruning: why a backend needs no more measurements, from its probe alone. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping

from pipetune.candidates.describe import describe
from pipetune.records.sweep import Measurement
from pipetune.search.choice import cheapest
from pipetune.search.costs import cores_decide, cores_tolerance
from pipetune.search.pooled import achieved, meets
from pipetune.search.state import Chosen, State
from pipetune.stats.noise import difference_by_chance

#: A backend is dominated if its probe needs this share more CPU time per sample than another's: then it cannot be
#: faster on the same cores, nor cheaper. Decoders do change places between one worker and many, by less. On a machine
#: on which two probes of one decoder may differ by more, that difference takes its place.
DOMINATED = 0.12
#: Settings may save more on a backend's probe than on the lead's, by this share of the CPU time that is left. Why: in
#: six grids of benchmarks/results/search_grids-*.json (2 cores) decoders needed from 38 % more to 51 % less than the
#: lead's saving made one expect; 3 of 36 less than this share allows, which DOMINATED has to make up for. Without it
#: the cheapest candidate is missed in 13 % of the grids instead of 3 %.
OPTIMISM = 0.4
#: A backend cannot win if its best conceivable result misses the target by more than this share, and by more than two
#: probes of one candidate differ by (one standard deviation).
PRUNE_MARGIN = 0.05


def dominated(state: State, backend: str, settings: Mapping[str, Chosen], estimate: float | None = None) -> str | None:
    """Why a backend is left out: another one's probe needs less CPU time per sample. ``None``: it stays.

    A backend of which a candidate failed dominates no other one.

    Args:
        settings: of each backend.
        estimate: CPU seconds per 1000 samples that its probe may need with other settings.
    """
    costs = {}
    own = state.probe(backend, {})
    for name, chosen in settings.items():
        if name != backend and not cores_decide(state.probe(name, chosen), own, state.goal, state.space):
            continue
        probe = state.measurement(state.probe(name, chosen))
        if probe is not None and probe.cpu_s_per_1000_samples and None not in state.points(name, chosen).values():
            costs[name] = probe.cpu_s_per_1000_samples
    if estimate is not None and backend in costs:
        costs[backend] = min(estimate, costs[backend])
    leanest = min(costs, key=lambda name: costs[name], default=backend)
    if costs.get(backend, 0) <= (1 + max(DOMINATED, difference_by_chance(state.noise))) * costs.get(leanest, 0):
        return None
    more_pct = 100 * (costs[backend] / costs[leanest] - 1)
    return f"its probe needed {more_pct:.0f} % more CPU time per image than {leanest}'s"


def optimistic_estimate(state: State, backend: str, lead: str, chosen: Chosen) -> float | None:
    """CPU seconds per 1000 samples that a backend's probe may need with the settings that gained on the lead's.

    Settings save about as much per image with one decoder as with another; :data:`OPTIMISM` allows for more.
    """
    costs = [
        None if m is None else m.cpu_s_per_1000_samples
        for m in (
            state.measurement(state.probe(name, kept)) for name, kept in ((backend, {}), (lead, {}), (lead, chosen))
        )
    ]
    if costs[0] is None or costs[1] is None or costs[2] is None:
        return None
    return max(0.0, costs[0] - max(0.0, costs[1] - costs[2])) * (1 - OPTIMISM)


def cannot_win(state: State, backend: str, measured: Mapping[int, Measurement]) -> str | None:
    """Why a backend cannot be the best: another is sufficient, and this one would not be for less. ``None``: it can.

    Args:
        measured: its measurements by worker count; its rate is taken to grow no faster than in proportion.
    """
    goal, best = state.goal, cheapest(state.outcomes.values(), state.goal, state.space, state.noise)
    if best is None or best.measurement is None or not meets(best.measurement, goal) or not measured:
        return None
    if best.candidate.backend == backend:
        return None
    # Without workers, loading and training take turns, from which nothing follows for workers.
    probe_count, probe = min(((c, m) for c, m in measured.items() if c), default=min(measured.items()))
    share = achieved(probe, goal)
    if share is None:
        return None
    conceivable = share * max(state.space.workers_of(backend)) / max(1, probe_count)
    if conceivable < goal.target * (1 - max(PRUNE_MARGIN, math.sqrt(2) * state.noise)):
        most = max(state.space.workers_of(backend))
        return f"even {most} of its workers would reach {100 * conceivable:.0f} % at most"
    per_sample, cores = probe.cpu_s_per_1000_samples, best.measurement.cores_used
    if per_sample is None or cores is None:
        return None
    if not cores_decide(best.candidate, state.probe(backend, {}), goal, state.space):
        return None
    # Cores in use at the target, however many workers share them.
    at_goal = per_sample / 1000 * probe.samples_per_s * goal.target / max(share, 1e-9)
    if at_goal - cores_tolerance(at_goal, state.noise) > cores:
        return f"at the target it would use {at_goal:.1f} cores, {describe(best.candidate)} uses {cores:.1f}"
    return None
