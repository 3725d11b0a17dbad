"""What a sweep measures, and how."""

from __future__ import annotations

from dataclasses import dataclass

from pipetune.candidates.space import Space
from pipetune.measure.conditions import Conditions
from pipetune.records.sweep import Goal
from pipetune.sweeping.unfit import UnfitCandidates


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to sweep and how."""

    space: Space
    goal: Goal
    conditions: Conditions
    seed: int
    budget_s: float | None = None
    """For the whole sweep, the ceiling included; ``None``: until the search is done."""
    grid: bool = False
    in_script: bool = False
    """The loader is measured in the user's own training loop."""
    script_ranks: int = 1
    """Ranks that the script starts, which are measured together."""
    new_start_s: float | None = None
    """What a new process takes from its start until it could ask the device (s), before one was measured: of a script,
    to its first training step. ``None``: what is usual."""
    blocks: int | None = None
    """So often the best candidates are compared side by side at most; ``None``: as the goal's effort has it."""
    other_batches: tuple[int, ...] = ()
    """Batch sizes besides the candidates' with which the ceiling is measured as well."""
    unfit: UnfitCandidates | None = None
    """Candidates that do not fit on this machine, which are not in ``space``; ``None``: all fit."""

    @property
    def present_space(self) -> Space:
        """The space with the candidates that fit by now."""
        return self.space if self.unfit is None else self.unfit.exclude_from(self.space)
