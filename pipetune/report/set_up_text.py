"""How much of a sweep was set-up, and of what. Pure."""

from __future__ import annotations

import dataclasses

from pipetune.records.set_up import SetUp
from pipetune.sweeping.result import SweepResult
from pipetune.units import format_duration

#: A sweep says what its set-up took from this share of its time on.
_MENTIONED_FRAC = 0.2
_NAMES = {
    "start_s": "process start", "import_s": "imports", "context_s": "device context", "model_s": "model",
    "warm_up_s": "the device's first steps",
}  # fmt: skip


def describe_set_up(result: SweepResult, least_frac: float = 0.0) -> str | None:
    """``'7.1 s of 30.0 s in 3 measurements (device context 5.0 s, model 2.1 s)'``.

    Args:
        least_frac: share of the sweep's time (0..1).

    Returns:
        ``None``: no set-up was measured, or it was a smaller part of the sweep.
    """
    outcomes = [*([result.ceiling] if result.ceiling else []), *result.outcomes]
    set_ups = [one.measurement.set_up for one in outcomes if one.measurement is not None and one.measurement.set_up]
    total_s = sum(set_up.total_s or 0.0 for set_up in set_ups)
    if total_s <= least_frac * result.seconds:
        return None
    stages = [
        f"{_NAMES[field.name]} {format_duration(stage_s)}"
        for field in dataclasses.fields(SetUp)
        if (stage_s := sum(getattr(set_up, field.name) or 0.0 for set_up in set_ups))
    ]
    many = f"{len(set_ups)} measurement{'' if len(set_ups) == 1 else 's'}"
    return f"{format_duration(total_s)} of {format_duration(result.seconds)} in {many} ({', '.join(stages)})"


def mention_set_up(result: SweepResult) -> str | None:
    """The sentence for the end of a sweep; ``None``: set-up was a small part of it, or was not measured."""
    described = describe_set_up(result, _MENTIONED_FRAC)
    return None if described is None else f"Set-up took {described}."
