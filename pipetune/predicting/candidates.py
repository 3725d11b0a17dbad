"""What a sweep expects of a candidate, from those that it has measured. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from pipetune.augmentation.recipes import WORKER
from pipetune.predicting.model import Costs, Setting, binding, rate_of
from pipetune.predicting.observed import Seen, apart, costs_of, differing, measured, scaled_to, setting_of
from pipetune.predicting.past_errors import MEASURED_DEVICE, usual_error
from pipetune.records.prediction import EXTRAPOLATED, INTERPOLATED, MODEL_VERSION, ONE_FACTOR, Prediction
from pipetune.records.sweep import Candidate, Outcome

#: One thing that changes by this factor at most is not far from what was measured.
NEAR = 2.0


def predict_candidate(
    candidate: Candidate, outcomes: Sequence[Outcome], *, cores: float | None, ranks: int = 1, blocking: bool = False
) -> Prediction | None:  # fmt: skip
    """What measuring a candidate will probably give; ``None``: too little was measured, or it was measured itself.

    Candidates that augment elsewhere say nothing of it: what a recipe takes in a worker depends on the machine, and how
    long a step is that augments first, no ceiling says. Hence nothing is predicted of those that leave it to
    the device.

    Args:
        outcomes: of the sweep until now.
        cores: usable ones; ``None``: not known, and then nothing is predicted.
        blocking: a training step keeps the training process.
    """
    seen = [one for one in measured(outcomes) if one.candidate.transforms_on == WORKER]
    if candidate.transforms_on != WORKER:
        return None
    if not cores or not seen or any(one.candidate == candidate for one in seen):
        return None
    nearest = min(seen, key=lambda one: _distance(one.candidate, candidate))
    costs = costs_of(nearest.candidate, seen, cores=cores, ranks=ranks, blocking=blocking)
    if costs is None:
        return None
    if differing(nearest.candidate, candidate):
        costs = scaled_to(costs, candidate, nearest.candidate)
    kind = _kind(candidate, [one.candidate for one in seen], nearest)
    return predicted(costs, setting_of(candidate, cores, ranks, blocking=blocking), kind, own_errors(outcomes, kind))


def predicted(
    costs: Costs, setting: Setting, kind: str, own: Sequence[float] = (), *, demand_error: float = MEASURED_DEVICE,
    storage: tuple[float | None, float | None] | None = None, least: float = 1.0,
) -> Prediction:  # fmt: skip
    """The rate with its interval.

    Args:
        own: log errors of the run's own predictions of this kind.
        demand_error: relative uncertainty of what the accelerators take.
        storage: what storage may deliver at least and at most (samples/s; ``None``: it is no limit); unless given, what
            the setting has.
        least: factor of the rate that something which is not known may cost.
    """
    factor = math.exp(usual_error(kind, own))
    bound, after = binding(costs, setting)
    slowest, fastest = setting, setting
    if storage is not None:
        slowest, fastest = (replace(setting, storage_per_s=rate) for rate in storage)
    low = least * rate_of(costs, slowest, supply_factor=1 / factor, demand_factor=1 - demand_error)
    high = rate_of(costs, fastest, supply_factor=factor, demand_factor=1 + demand_error)
    return Prediction(
        samples_per_s=rate_of(costs, setting), interval90=(low, high),
        demand_samples_per_s=setting.ranks * costs.demand_per_s, bound_by=bound, next_bound_by=after, kind=kind,
    )  # fmt: skip


def own_errors(outcomes: Sequence[Outcome], kind: str | None = None) -> list[float]:
    """``log(predicted / measured)`` of the predictions that a sweep has made, where the loader set the pace.

    Args:
        kind: of these only; ``None``: of all.
    """
    found = []
    for outcome in outcomes:
        prediction, m = outcome.predicted, outcome.measurement
        if prediction is None or m is None or prediction.model_version != MODEL_VERSION:
            continue
        one = Seen(candidate=outcome.candidate, measurement=m)
        if one.loader_limited and kind in (None, prediction.kind) and prediction.samples_per_s > 0:
            found.append(math.log(prediction.samples_per_s / one.rate))
    return found


def _kind(candidate: Candidate, others: Sequence[Candidate], nearest: Seen) -> str:
    different = differing(nearest.candidate, candidate)
    if different:
        # Another decoder is another program.
        same_workers = candidate.num_workers == nearest.candidate.num_workers
        return ONE_FACTOR if "backend" not in different and len(different) == 1 and same_workers else EXTRAPOLATED
    counts = [
        other.num_workers for other in others
        if not differing(other, candidate) and bool(other.num_workers) == bool(candidate.num_workers)
    ]  # fmt: skip
    if counts and min(counts) <= candidate.num_workers <= max(counts):
        return INTERPOLATED
    if not min(candidate.num_workers, nearest.candidate.num_workers):
        return EXTRAPOLATED  # with workers and without, other things are done
    factor = candidate.num_workers / nearest.candidate.num_workers
    return ONE_FACTOR if 1 / NEAR <= factor <= NEAR else EXTRAPOLATED


def _distance(one: Candidate, other: Candidate) -> tuple[bool, int, float]:
    return one.backend != other.backend, len(differing(one, other)), apart(one.num_workers, other.num_workers)
