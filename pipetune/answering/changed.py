"""A question's effect on what loading costs, and why there may be no answer."""

from __future__ import annotations

from dataclasses import dataclass, field

from pipetune.predicting.model import Costs, Setting
from pipetune.predicting.past_errors import MEASURED_DEVICE


class Refused(Exception):
    """The answer cannot be known; the text says why, in one line."""


@dataclass
class Changed:
    """A question's effect on costs and setting, as it grows."""

    costs: Costs
    setting: Setting
    factors: list[float] = field(default_factory=list)
    """By how much each thing changes; infinite where nothing like it was measured."""
    notes: list[str] = field(default_factory=list)
    demand_error: float = MEASURED_DEVICE
    storage: tuple[float | None, float | None] | None = None
    """What storage may deliver at least and at most (samples/s)."""
    file_bytes: float | None = None
