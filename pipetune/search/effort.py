"""Effort: when a further measurement is expected to gain too little for the time it takes. Pure.

Where a candidate is sufficient, only cores are left to save, and no other candidate can save more than what the
cheapest one uses beyond the least that any is expected to need. Where that is below the effort's threshold, the search
ends. What a decoder needs that was not measured is estimated from what it usually needs beside one that was
(:attr:`pipetune.registry.Backend.usual_cost`), low enough for the estimate to err on the side of measuring.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from pipetune.candidates.settings import LOADER
from pipetune.records.sweep import THOROUGH, Candidate, Goal, Measurement, Outcome
from pipetune.registry import THREADS, find_backend, is_exact
from pipetune.search.choice import as_in_space, cheapest
from pipetune.search.costs import loses_before_cores
from pipetune.search.pooled import baseline, cores_of, is_clearly_sufficient, meets, rate_at_target
from pipetune.search.state import Chosen, State


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How far a search goes."""

    least_cores: float
    """Saving that is looked for, at least (cores)."""
    least_share: float
    """The same, as a share of the cores that are used."""
    blocks: int
    """So often the best candidates are compared side by side at most."""
    blocks_at_target: int
    """The same while chance may have decided whether the target is reached, by the best one or by a cheaper one."""
    blocks_where_none: int
    """The same where no candidate reaches the target, so that the fastest is looked for: decoders are often closer to
    each other than repeats of one are (3 % and 4 % apart in benchmarks/search/time_to_recommendation.py)."""
    rounds_in_script: int
    """So often candidates take turns in the user's running script at most, before fresh starts of it confirm what is
    recommended: the best one and the script as it is, while it is not proven that the script should be changed; in a
    thorough search also the best one and its rivals."""
    blocks_for_proof: int
    """So often the best candidate and the baseline are compared side by side at most, while it is not proven that the
    baseline should be changed, and further blocks may prove it."""
    rivals: int
    """So many candidates are compared with the best at most, besides the default."""
    most: float
    """So many measurements are made at most before the best are compared, the repeated ones counted. Why: on a machine
    that other processes disturb, everything may be faster than it looks, and nothing is ever decided."""
    about: str


DEFAULT_EFFORT = "normal"
#: What ``--effort`` may name.
EFFORTS = {
    "quick": Effort(
        least_cores=float("inf"), least_share=1.0, blocks=1, blocks_at_target=1, blocks_where_none=1,
        rounds_in_script=1, blocks_for_proof=2, rivals=1, most=20,
        about="ends with the first candidate that is sufficient",
    ),
    "normal": Effort(
        least_cores=1.0, least_share=0.1, blocks=1, blocks_at_target=3, blocks_where_none=2, rounds_in_script=3,
        blocks_for_proof=3, rivals=1, most=24,
        about="ends when less than one core, or less than a tenth of those in use, can be saved",
    ),
    THOROUGH: Effort(
        least_cores=0.0, least_share=0.0, blocks=3, blocks_at_target=3, blocks_where_none=3, rounds_in_script=2,
        blocks_for_proof=4, rivals=2, most=float("inf"),
        about="probes every backend and looks for any saving",
    ),
}  # fmt: skip

#: Settings that were not tried yet may leave this share of a probe's CPU time per image, together with those after them
#: in the list. The least that they left in the seven grids of benchmarks/results/search_grids-*.json (2 cores): threads
#: with bytes 0.32 of what processes with float32 need, bytes in processes 0.47, bytes in threads 0.83. Others: chosen;
#: augmenting takes up to two thirds of a loader's CPU time (benchmarks/loaders/augmentation.py), the rest may shrink.
UNTUNED = {"transforms_on": 0.15, "loader": 0.3, "transfer": 0.45, "reuse_buffers": 0.8}
UNTUNED_THREADS = {"transfer": 0.75}
UNTUNED_OTHER = 0.85
#: Other worker counts and prefetch depths may leave this share of a tuned probe's: chosen, repeats scatter by less.
TUNED = 0.9
#: What a decoder usually needs beside another may be off by this share: on the machines of those grids it is by 10 to
#: 30 %, and a decoder that is wrongly left out costs more than a measurement.
OFF_USUAL = 0.25
#: Where none is sufficient, a decoder that was not measured is tried unless it usually needs this share more CPU time
#: than the leanest one that was.
MAY_BE_FASTER = 0.25
#: Share of the usable cores from which on unused ones count as idle: chosen, so that repeats, which scatter by less
#: than a tenth, do not decide it.
SPARE_CORES = 0.2
#: Cores from which on a saving is told as a number: what would be written as 0.0 is none.
_LEAST_SAVING_CORES = 0.05


def is_thorough(goal: Goal) -> bool:
    """Whether every backend is probed, whatever it usually costs."""
    return goal.effort == THOROUGH


def enough(state: State, lead: str | None, chosen: Chosen, untried: Sequence[str]) -> str | None:
    """Why the search ends although there are candidates left; ``None``: it goes on.

    Args:
        lead: the backend on which settings are tuned; ``None``: none was measured yet.
        chosen: the settings that gained on it so far.
        untried: names of the settings that were not tried on it, in their order.
    """
    effort = EFFORTS[state.goal.effort]
    if is_thorough(state.goal):
        return None
    best = cheapest(state.outcomes.values(), state.goal, state.space, state.noise)
    if best is None or best.measurement is None or not meets(best.measurement, state.goal):
        return None
    if not is_clearly_sufficient(best.measurement, state.goal, state.space):
        return None
    if state.space.confirm_alone and best.measurement.cores_used is None:
        return "what loading takes of the CPU is not known, so no saving could be proven"
    if not state.space.has(as_in_space(best.candidate, state.space)):
        return None  # the default, which the user's options leave out
    if effort.least_cores == inf:
        return f"--effort {state.goal.effort} takes the first candidate that suffices"
    if not cores_decide(state.goal):  # what else may be saved is not foreseen
        return None
    used = cores_of(best, best.measurement)
    saving = used - _least_cores(state, best, lead, chosen, untried)
    if saving >= max(effort.least_cores, effort.least_share * used):
        return None
    if saving < _LEAST_SAVING_CORES:
        return "no other configuration is expected to need fewer cores"
    return f"no other configuration is expected to save more than {saving:.1f} cores"


def may_matter(state: State, backend: str, lead: str) -> bool:
    """Whether a backend that was not measured is probed: where it usually needs about as little as the leanest."""
    best = cheapest(state.outcomes.values(), state.goal, state.space, state.noise)
    sufficient = best is not None and best.measurement is not None and meets(best.measurement, state.goal)
    if sufficient and best is not None and loses_before_cores(backend, best.candidate.backend, state.goal, state.space):
        return False
    ratio = find_backend(backend).usual_cost / _leanest_usual(state, lead)
    # Where something is sufficient already, pixels that are not exact have to make up for it.
    slack = 0.0 if sufficient and not is_exact(find_backend(backend)) else MAY_BE_FASTER
    return ratio < 1 + slack


def may_suffice(state: State, probe: Candidate) -> bool:
    """Whether a probe's candidate may reach the target if all usable cores do what its one worker did."""
    measurement, usable = state.measurement(probe), state.space.usable_cores
    cost, needed = _cost(measurement), None if measurement is None else rate_at_target(measurement, state.goal)
    if not cost or not needed or usable is None:
        return True
    return usable * 1000 / cost >= needed


def _leanest_usual(state: State, lead: str) -> float:
    """The least usual cost of a backend that was measured with a worker."""
    measured = {o.candidate.backend for o in state.outcomes.values() if o.measurement and o.candidate.num_workers}
    return min(find_backend(name).usual_cost for name in (lead, *measured))


def has_idle_cores(state: State, best: Outcome | None) -> bool:
    """Whether the best candidate, with the training step, leaves cores unused; not, where that is not known."""
    if best is None or best.measurement is None or state.space.usable_cores is None:
        return False
    return leaves_cores(state, best.measurement)


def leaves_cores(state: State, measurement: Measurement) -> bool:
    """Whether a candidate, with the training step, left cores unused; ``True`` where that is not known."""
    usable, used = state.space.usable_cores, measurement.cores_used
    return usable is None or used is None or used + (measurement.step_cores or 0.0) < (1 - SPARE_CORES) * usable


def cores_decide(goal: Goal) -> bool:
    """Whether cores are the first cost in which CPU decoders differ: a saving in cores is what a search is for."""
    return next((name for name in goal.cheapest if name != "accelerator"), "cores") == "cores"


def _least_cores(state: State, best: Outcome, lead: str | None, chosen: Chosen, untried: Sequence[str]) -> float:
    """The least cores that any candidate that may take the best one's place is expected to need at the target."""
    assert best.measurement is not None
    names = [
        name for name in state.space.backends
        if not loses_before_cores(name, best.candidate.backend, state.goal, state.space)
    ]  # fmt: skip
    rate = rate_at_target(best.measurement, state.goal) or best.measurement.samples_per_s * state.goal.target
    return rate / 1000 * min((_least_cost(state, name, lead, chosen, untried) for name in names), default=inf)


def _least_cost(state: State, backend: str, lead: str | None, chosen: Chosen, untried: Sequence[str]) -> float:
    """The least CPU seconds per 1000 samples that a backend is expected to need."""
    own = [cost for o in state.outcomes.values() if o.candidate.backend == backend and (cost := _cost(o.measurement))]
    if not state.space.workers_of(backend):  # measured before a limit was lowered: nothing of it is left to try
        return min(own, default=inf)
    if own and not untried and state.measurement(state.probe(backend, chosen)) is not None:
        return TUNED * min(own)
    left = _untuned(chosen, untried)
    if own and (backend == lead or lead is None):
        return left * min(own)
    reference = lead or baseline(state.space).backend
    theirs = [c for o in state.outcomes.values() if o.candidate.backend == reference and (c := _cost(o.measurement))]
    if not theirs:
        return 0.0
    usual = find_backend(backend).usual_cost / find_backend(reference).usual_cost
    # Not both: that settings which were not tried save as much as they ever did, and that it is leaner than usual.
    return usual * min(left, 1 - OFF_USUAL) * min(theirs)


def _untuned(chosen: Chosen, untried: Sequence[str]) -> float:
    """Share of a probe's CPU time per image that settings which were not tried yet may leave."""
    if not untried:
        return 1.0
    shares = UNTUNED_THREADS if chosen.get(LOADER) == THREADS else UNTUNED
    return shares.get(untried[0], UNTUNED_OTHER)


def _cost(measurement: Measurement | None) -> float | None:
    return None if measurement is None else measurement.cpu_s_per_1000_samples
