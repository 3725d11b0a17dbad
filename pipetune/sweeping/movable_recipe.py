"""Whether augmenting on the device is worth trying for a candidate that augments in its workers. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pipetune.augmentation.recipes import BASIC, DEVICE, RECIPES, WORKER, device_augments
from pipetune.records.sweep import AcceleratorSpec, Candidate, Outcome


def find_movable_recipe(
    candidate: Candidate, recipe: str, accelerator: AcceleratorSpec, outcomes: Sequence[Outcome]
) -> str | None:
    """The recipe's short name where the device may take it from the workers; ``None``: nothing speaks for that.

    Args:
        recipe: of the workload.
        outcomes: of the sweep; where the move has made the same decoder slower, it is not worth trying.
    """
    known = RECIPES.get(recipe)
    if known is None or recipe == BASIC or candidate.transforms_on != WORKER or not device_augments(accelerator):
        return None
    if accelerator.kind == "cpu":  # which augments with the cores that the workers need as well
        return None
    rates = {
        outcome.candidate: outcome.measurement.samples_per_s
        for outcome in outcomes
        if outcome.measurement is not None and outcome.candidate.backend == candidate.backend
    }
    for measured, samples_per_s in rates.items():
        moved = rates.get(replace(measured, transforms_on=DEVICE))
        if measured.transforms_on == WORKER and moved is not None and moved <= samples_per_s:
            return None
    return known.short
