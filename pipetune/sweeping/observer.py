"""What a running sweep reports, and to whom: the library prints nothing itself."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass

from pipetune.measure.harness import Live
from pipetune.records.sweep import AcceleratorSpec, Candidate, Goal, Outcome
from pipetune.sweeping.progress import Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """News of the candidate that is being measured."""

    candidate: Candidate
    role: str
    """See :class:`pipetune.records.sweep.Outcome`."""
    attempt: int
    why: str
    """Why it is measured."""
    live: Live
    other_batch: bool = False
    """See :class:`pipetune.records.sweep.Outcome`."""


class SweepObserver(AbstractContextManager["SweepObserver"]):
    """Receives what a sweep reports while it runs; this one does nothing with it.

    A context manager, entered once before the first report.
    """

    def __exit__(self, *_: object) -> None:
        """The sweep has ended, whichever way."""

    def on_stage(self, stage: str, done: int, total: int | None) -> None:
        """Images are listed or made before the first candidate; ``total`` is ``None`` where it is not known."""

    def on_start(self, accelerator: AcceleratorSpec, goal: Goal, max_candidates: int, budget_s: float | None) -> None:
        """Measuring begins: at most this many candidates, after the accelerator's own ceiling."""

    def on_known(self, outcome: Outcome) -> None:
        """An outcome was taken over from the interrupted sweep."""

    def on_event(self, event: Event) -> None:
        """The running candidate has news."""

    def on_outcome(self, outcome: Outcome) -> None:
        """A candidate is done, and saved."""

    def on_progress(self, progress: Progress) -> None:
        """How far the sweep has come, after each outcome."""
