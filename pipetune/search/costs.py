"""What a candidate costs, criterion by criterion, and when two costs are the same. Pure.

Why not a weighted sum: nobody can say how many cores a decibel is worth. The criteria are compared in the order that
the user gives (``--cheapest``), and the next one decides only where the one before sees no difference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pipetune.augmentation.recipes import DEVICE
from pipetune.candidates.space import Space
from pipetune.records.sweep import Candidate, Goal, Measurement, Outcome
from pipetune.registry import find_backend
from pipetune.search.pooled import cores_of

#: Two numbers of cores are the same if they differ by less than this, by this share, or by one standard deviation
#: between repeats on this machine.
SAME_CORES = 0.15
SAME_CORES_SHARE = 0.05
#: Two sizes of memory are the same if they differ by less than this share. Why: memory depends on how full the queues
#: are; four measurements of one candidate gave 587 to 663 MiB.
SAME_MEMORY = 0.10
#: Two deviations of pixels (dB) are the same if they differ by less than this.
SAME_PIXELS_DB = 3.0
#: Deviation (dB) from which on pixels count as those of the reference.
_EQUAL_DB = 100.0

Pair = tuple[Outcome, Measurement]


@dataclass(frozen=True, slots=True, kw_only=True)
class Criterion:
    """One kind of cost; smaller is cheaper."""

    value: Callable[[Outcome, Measurement, Space], float]
    tolerance: Callable[[float, float], float]
    """``tolerance(smaller, noise)``: a value above the smaller one by no more than this counts as the same, where
    repeats scatter by ``noise`` (relative standard deviation)."""
    about: str
    of_backend: Callable[[str, Space], float] = lambda backend, space: 0.0
    """The value where the backend alone decides it."""


def cores_tolerance(cores: float, noise: float) -> float:
    """Difference in cores that counts as none beside so many, where repeats scatter by ``noise`` (relative)."""
    return max(SAME_CORES, SAME_CORES_SHARE * cores, noise * cores)


def _pixels(backend: str, space: Space) -> float:
    deviation = find_backend(backend).deviation
    return 0.0 if deviation is None else _EQUAL_DB - min(_EQUAL_DB, deviation.psnr_db)


def _decodes(backend: str, space: Space) -> float:
    return float(backend in space.accelerator_decodes)


def _on_accelerator(candidate: Candidate, space: Space) -> float:
    """How many kinds of work the accelerator has besides the model's."""
    return _decodes(candidate.backend, space) + (candidate.transforms_on == DEVICE)


#: What ``--cheapest`` may name.
CRITERIA: dict[str, Criterion] = {
    "accelerator": Criterion(
        value=lambda outcome, _, space: _on_accelerator(outcome.candidate, space), of_backend=_decodes,
        tolerance=lambda smaller, noise: 0.0,
        about="decoding or augmenting on the accelerator, which has a model to train",
    ),
    "cores": Criterion(
        value=lambda outcome, m, _: cores_of(outcome, m), tolerance=cores_tolerance, about="CPU cores in use"
    ),
    "memory": Criterion(
        value=lambda _, m, __: math.inf if m.pss_bytes is None else m.pss_bytes,
        tolerance=lambda smaller, noise: SAME_MEMORY * smaller, about="memory (PSS)",
    ),
    "pixels": Criterion(
        value=lambda outcome, _, space: _pixels(outcome.candidate.backend, space), of_backend=_pixels,
        tolerance=lambda smaller, noise: SAME_PIXELS_DB, about="deviation from Pillow's pixels",
    ),
}  # fmt: skip


def is_cheaper(one: Pair, other: Pair, goal: Goal, space: Space, noise: float) -> bool:
    """Whether the first is cheaper in the first criterion in which the two differ."""
    for name in goal.cheapest:
        criterion = CRITERIA[name]
        first, second = criterion.value(*one, space), criterion.value(*other, space)
        if abs(first - second) > criterion.tolerance(min(first, second), noise):
            return first < second
    return False


def cheapest_by(pairs: Sequence[Pair], criterion: Criterion, space: Space, noise: float) -> list[Pair]:
    """The cheapest by one criterion, with all that cost the same."""
    if not pairs:
        return []
    values = [criterion.value(*pair, space) for pair in pairs]
    limit = min(values) + criterion.tolerance(min(values), noise)
    return [pair for pair, value in zip(pairs, values, strict=True) if value <= limit]


def cores_decide(one: Candidate, other: Candidate, goal: Goal, space: Space) -> bool:
    """Whether fewer cores make the first cheaper: it costs no more in the criteria before cores, as far as known."""
    for name in goal.cheapest:
        if name == "cores":
            return goal.most_memory_bytes is None
        if name == "memory":
            return False
        values = [CRITERIA[name].of_backend(candidate.backend, space) for candidate in (one, other)]
        if values[0] > values[1] + CRITERIA[name].tolerance(values[1], 0.0):
            return False
    return False


def loses_before_cores(backend: str, other: str, goal: Goal, space: Space) -> bool:
    """Whether a backend costs more than another in what is compared before cores, however few it needs."""
    for name in goal.cheapest:
        if name in ("cores", "memory"):
            return False
        values = [CRITERIA[name].of_backend(one, space) for one in (backend, other)]
        if abs(values[0] - values[1]) > CRITERIA[name].tolerance(min(values), 0.0):
            return values[0] > values[1]
    return False
