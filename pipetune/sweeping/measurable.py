"""Whether what a sweep's goal is about can be measured at all. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from pipetune.errors import PipetuneError
from pipetune.measure.gpu_figures import NO_UTILISATION
from pipetune.records.sweep import Goal, Outcome

#: Begin the notes of a measurement in which no GPU could be read, or nothing was known of the timed phase.
_REASONS = ("no GPU readings: ", NO_UTILISATION)


def require_achieved(outcomes: Sequence[Outcome], goal: Goal) -> None:
    """Refuse to go on where what the goal is about was never measured: without it every candidate would miss it.

    One that lacks it among others that have it misses the target alone: a driver may have rested for a moment.

    Args:
        outcomes: those so far.

    Raises:
        PipetuneError: it cannot be measured.
    """
    measured = [outcome.measurement for outcome in outcomes if outcome.measurement is not None]
    if goal.metric != "nvml" or not measured or any(m.gpu_util_pct is not None for m in measured):
        return
    notes = [note for m in measured for note in m.warnings if note.startswith(_REASONS)]
    why = notes[0].partition(": ")[2] if notes else "NVML states none here, as for a slice of a GPU (MIG)"
    raise PipetuneError(f"the GPU's utilisation could not be measured: {why}", hint="use --target-metric goodput")
