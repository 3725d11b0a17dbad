"""How long a candidate took before its loader was opened, stage by stage."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SetUp:
    """Seconds of each stage of a candidate's set-up. ``None``: there is no such stage, or it was not measured.

    Of several ranks, which are set up at the same time, each stage is the slowest rank's. What follows has fields of
    its own: the loader is opened (:attr:`pipetune.records.sweep.Measurement.open_s`), makes its first batch
    (``time_to_first_batch_s``), and warms up.
    """

    start_s: float | None = None
    """From the request for a process to its first line: a fork, or a new interpreter. Of a script that was started
    anew: to its first training step."""
    import_s: float | None = None
    """Imports that the process did not have yet, and the index of the images."""
    context_s: float | None = None
    """The device's driver and its context, to the end of the first allocation; ``None``: an emulated device or the CPU,
    which have none."""
    model_s: float | None = None
    """Building the model and moving it to the device; ``None``: an emulated device, which has none."""
    warm_up_s: float | None = None
    """The device's first steps: kernels are loaded, algorithms are chosen, a model is compiled; ``None``: an emulated
    device, whose first step is like any other."""

    @property
    def total_s(self) -> float | None:
        """All stages together; ``None``: none was measured."""
        stages = [seconds for field in dataclasses.fields(self) if (seconds := getattr(self, field.name)) is not None]
        return sum(stages) if stages else None


def slowest_stages(ranks: list[SetUp]) -> SetUp | None:
    """Each stage of the rank that took longest in it; ``None``: no rank has told."""
    if not ranks:
        return None
    return SetUp(
        **{
            field.name: max((s for rank in ranks if (s := getattr(rank, field.name)) is not None), default=None)
            for field in dataclasses.fields(SetUp)
        }
    )
