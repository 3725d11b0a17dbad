"""The phases of a measurement in a script's loop, from what the parent asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from pipetune.measure.phases import MIN_EPOCHS, PhaseProgress, Phases, Question, plan_phases

#: Other ranks hear of the last step at least so many steps, and so long (s), before it.
_AHEAD_STEPS, _AHEAD_S = 4, 0.2


def make_phases(
    request: Mapping[str, Any], progress: PhaseProgress, length: int | None, epoch: Callable[[], int | None] | None
) -> Phases:
    """The phases that a request asks for.

    Args:
        request: the message ``measure``.
        progress: is kept up to date by them.
        length: batches of an epoch; ``None``: not known.
        epoch: tells that again in the course of the measurement; ``None``: kept batches are replayed.
    """
    ceiling = request["role"] == "ceiling"
    question = None if request["question"] is None else _read_question(request["question"])
    plan = plan_phases(
        int(request["num_workers"]), int(request["prefetch_depth"]), request["seconds"], request["warmup_limit_s"]
    )
    plan = replace(plan, ends_when_fed=True)
    if length and not ceiling:  # no epoch has a larger backlog than itself
        plan = replace(plan, backlog=max(2, min(plan.backlog, MIN_EPOCHS * length)))
    if ceiling:  # kept batches come from no worker, and have no backlog
        plan = replace(plan, unit=1, backlog=1)
    return Phases(plan, progress, question, epoch=epoch)


def _read_question(values: Mapping[str, Any]) -> Question:
    return Question(**{**values, "levels": tuple(values["levels"])})


def describe_progress(progress: PhaseProgress) -> dict[str, Any]:
    """How a measurement went, as the message ``result`` has it."""
    return {
        "warmup_batches": progress.warmup_batches,
        "steady": progress.steady,
        "window_batches": progress.window_batches,
        "ended_early": progress.answered,
        "epoch_windows": progress.epoch_windows,
        "whole_epochs": progress.whole_epochs,
    }


def count_steps_ahead(spent_ns: int, batches: int) -> int:
    """How many steps before the last one the ranks hear of it.

    Args:
        spent_ns: since the end of the first step, which has waited for new workers.
        batches: since the request.
    """
    step_s = max(1e-3, spent_ns / 1e9 / max(1, batches - 1))
    return max(_AHEAD_STEPS, round(_AHEAD_S / step_s))
