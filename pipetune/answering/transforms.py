"""Images augmented elsewhere: by the accelerator and not by the workers. Pure."""

from __future__ import annotations

from dataclasses import replace

from pipetune.answering.base import Base
from pipetune.answering.changed import Changed, Refused
from pipetune.augmentation.recipes import BASIC, DEVICE, RECIPES
from pipetune.records.explanation import AUGMENT
from pipetune.records.prediction import Question


def move_transforms(question: Question, base: Base, changed: Changed) -> None:
    """Take augmenting from the workers, and give it to the accelerator.

    Raises:
        Refused: nothing is augmented, or what it takes is not known.
    """
    recipe = base.workload.augment
    if question.transforms in (None, base.candidate.transforms_on) and recipe != BASIC:
        if base.candidate.transforms_on == DEVICE and not _is_known(question, base):
            changed.notes.append(_not_in_rate(recipe))
        return
    if question.transforms is None:
        return
    if recipe == BASIC:
        raise Refused(f"{base.path} has crops and flips only: pipetune sweep --augment measures more")
    if question.transforms != DEVICE:
        raise Refused(
            f"what augmenting takes in workers is not known of {base.candidate.key}: ask of a candidate that does it "
            "there"
        )
    saved = sum(cost.cpu_s_per_1000_samples for cost in base.stages if cost.stages == (AUGMENT,))
    total = sum(max(0.0, cost.cpu_s_per_1000_samples) for cost in base.stages)
    if not 0 < saved < total:
        raise Refused(f"what augmenting takes in workers is not known of {base.path}: pipetune explain measures it")
    left = 1 - saved / total
    costs = changed.costs.faster(1 / left)
    changed.costs = replace(costs, process_s=min(changed.costs.process_s, costs.load_s))
    changed.factors.append(left)
    if base.augmenting_s is None or not _is_known(question, base):
        changed.notes.append(_not_in_rate(recipe))
        return
    changed.costs = replace(
        changed.costs,
        demand_per_s=1 / (1 / changed.costs.demand_per_s + base.augmenting_s),
        step_s=changed.costs.step_s + base.augmenting_cpu_s,
    )
    short = RECIPES[recipe].short
    changed.notes.append(f"{short} takes the accelerator {1e3 * base.augmenting_s:.2f} ms for each image")


def _is_known(question: Question, base: Base) -> bool:
    """Whether it was measured what augmenting takes the accelerator that is asked about."""
    return base.augmenting_s is not None and question.device is None


def _not_in_rate(recipe: str) -> str:
    return f"what {RECIPES[recipe].short} takes the accelerator is not known, and not in this rate"
