"""What the search asks of a measurement that may end early. Pure."""

from __future__ import annotations

from pipetune.measure.phases import OVERTIME, Question
from pipetune.records.sweep import Measurement
from pipetune.search.effort import is_thorough
from pipetune.sweeping.sweep_plan import Plan


def question_for(
    plan: Plan, block: int, role: str, ceiling: Measurement | None, run_noise: float, device_noise: float | None
) -> Question | None:
    """The question of a candidate; ``None``: its timed phase has its set length.

    In a thorough search what is compared closely is measured in full. A script's ceiling comes twice within a minute:
    nothing but a small scatter is asked of it.

    Args:
        block: see :class:`pipetune.records.sweep.Outcome`, also for ``role``.
        ceiling: the max ingestion rate; ``None``: it is being measured.
        run_noise: see :func:`pipetune.stats.noise.run_noise`.
        device_noise: see :func:`pipetune.stats.noise.device_noise`.
    """
    goal, kind = plan.goal, plan.conditions.workload.accelerator.kind
    compared = is_thorough(goal) and (block or role in ("baseline", "ceiling"))
    short = plan.in_script if role == "ceiling" else ceiling is not None
    if compared or plan.grid or goal.metric != "goodput" or not short:
        return None
    full = None if role == "ceiling" or ceiling is None else ceiling.samples_per_s
    return Question(
        levels=() if full is None else (goal.target * full,),
        run_noise=run_noise,
        device_noise=None if kind == "cpu" else device_noise,
        alone_samples_per_s=None if kind == "emulated" else full,
        full_samples_per_s=full,
        overtime=OVERTIME if plan.conditions.timeout_s is None else 1.0,  # set for the default length
    )
