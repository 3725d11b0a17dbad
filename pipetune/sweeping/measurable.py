"""Whether what a sweep's goal is about can be measured at all. Pure."""

from __future__ import annotations

from pipetune.errors import PipetuneError
from pipetune.records.sweep import Goal, Outcome


def require_achieved(outcome: Outcome, goal: Goal) -> None:
    """Refuse to go on where what the goal is about cannot be measured: without it every candidate would miss it.

    Raises:
        PipetuneError: it cannot.
    """
    if goal.metric == "nvml" and outcome.measurement is not None and outcome.measurement.gpu_util_pct is None:
        raise PipetuneError(
            "the GPU's utilisation could not be measured: NVML states none here, as for a slice of a GPU (MIG)",
            hint="use --target-metric goodput",
        )
