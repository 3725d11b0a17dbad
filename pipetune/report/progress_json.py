"""What a running sweep reports as lines of JSON, for programs: ``pipetune sweep --progress json``."""

from __future__ import annotations

import contextlib
import json
from typing import Any, TextIO

from pipetune.measure.harness import Live
from pipetune.records.sweep import AcceleratorSpec, Goal, Outcome
from pipetune.sweeping.observer import Event, SweepObserver
from pipetune.sweeping.progress import Progress

#: Each kind of line with its fields, for the manual.
LINES = {
    "stage": {
        "stage": "what is done before the first candidate", "done": "so many", "total": "of so many; null: not known",
    },
    "start": {
        "accelerator": "its name", "target": "share to reach", "effort": "quick, normal or thorough",
        "max_candidates": "so many at most", "budget_s": "`--budget` (s); null: none",
    },
    "candidate": {
        "key": "of the candidate that is measured now", "role": "ceiling, baseline or candidate",
        "attempt": "2: it is repeated", "phase": "such as warmup and timed", "why": "the reason",
    },
    "outcome": {
        "key": "of the candidate that is done", "role": "ceiling, baseline or candidate",
        "block": "in which it was compared side by side; 0: in none", "samples_per_s": "rate; null: it failed",
        "ci95": "95 % interval of the rate", "goodput": "share of the max ingestion rate",
        "failure": "kind of the failure; null: none", "wall_s": "time that it took (s)",
    },
    "progress": {
        "best": "key of the best candidate so far; null: none yet", "goodput": "its share of the max ingestion rate",
        "suffices": "it reaches the target", "default_suffices": "PyTorch's default does, or the script as it is",
        "left_s": "about how long it will still take (s); null: not known", "at_least": "`left_s` is a lower bound",
    },
}  # fmt: skip


class JsonLines(SweepObserver):
    """Writes one JSON object per line. A reader that goes away ends nothing: the sweep goes on without one."""

    def __init__(self, file: TextIO) -> None:
        self._file: TextIO | None = file
        self._phase: tuple[Any, ...] | None = None

    def on_stage(self, stage: str, done: int, total: int | None) -> None:
        """See :class:`SweepObserver`."""
        self._write("stage", stage=stage, done=done, total=total)

    def on_start(self, accelerator: AcceleratorSpec, goal: Goal, max_candidates: int, budget_s: float | None) -> None:
        """See :class:`SweepObserver`."""
        self._write(
            "start", accelerator=accelerator.name, target=goal.target, effort=goal.effort,
            max_candidates=max_candidates, budget_s=budget_s,
        )  # fmt: skip

    def on_known(self, outcome: Outcome) -> None:
        """See :class:`SweepObserver`."""
        self.on_outcome(outcome)

    def on_event(self, event: Event) -> None:
        """One line per phase, and not one per reading."""
        live: Live = event.live
        phase = (event.candidate.key, event.role, event.attempt, live.phase)
        if phase != self._phase:
            self._phase = phase
            self._write(
                "candidate", key=event.candidate.key, role=event.role, attempt=event.attempt, phase=live.phase,
                why=event.why,
            )  # fmt: skip

    def on_outcome(self, outcome: Outcome) -> None:
        """See :class:`SweepObserver`."""
        m = outcome.measurement
        self._phase = None
        self._write(
            "outcome", key=outcome.candidate.key, role=outcome.role, block=outcome.block,
            samples_per_s=m and m.samples_per_s, ci95=m and m.ci95, goodput=m and m.goodput,
            failure=outcome.failure and outcome.failure.kind, wall_s=outcome.wall_s,
        )  # fmt: skip

    def on_progress(self, progress: Progress) -> None:
        """See :class:`SweepObserver`."""
        best, left = progress.best, progress.left
        self._write(
            "progress", best=best and best.candidate.key,
            goodput=best and best.measurement and best.measurement.goodput, suffices=progress.suffices,
            default_suffices=progress.default_suffices, left_s=left and left.seconds,
            at_least=left is not None and left.at_least,
        )  # fmt: skip

    def _write(self, kind: str, **fields: Any) -> None:
        if self._file is None:
            return
        try:
            self._file.write(json.dumps({"type": kind, **fields}) + "\n")
            self._file.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                self._file.close()
            self._file = None
