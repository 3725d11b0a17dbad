from __future__ import annotations

import io
import json
from typing import Any

from pipetune.measure.harness import Live
from pipetune.records.sweep import AcceleratorSpec, Failure, Goal, Outcome
from pipetune.report.progress_json import LINES, JsonLines
from pipetune.sweeping.observer import Event
from pipetune.sweeping.progress import Progress, TimeLeft
from tests.fakes import outcome

GOAL = Goal(target=0.9, metric="goodput", effort="normal")
FAILED = Failure(kind="crashed", phase="open", message="x")


def event(phase: str, rate: float | None = None) -> Event:
    live = Live(phase=phase, samples_per_s=rate)
    return Event(candidate=outcome().candidate, role="candidate", attempt=1, why="a probe", live=live)


def written(best: Outcome | None = None) -> list[dict[str, Any]]:
    file = io.StringIO()
    lines = JsonLines(file)
    with lines:
        lines.on_stage("reading headers", 10, None)
        lines.on_start(AcceleratorSpec(kind="cpu", name="CPU"), GOAL, 9, 60.0)
        for phase, rate in (("open", None), ("timed", 100.0), ("timed", 120.0)):
            lines.on_event(event(phase, rate))
        lines.on_outcome(outcome(rate=1000.0))
        lines.on_outcome(outcome(failure=FAILED))
        left = None if best is None else TimeLeft(seconds=12.5, at_least=True)
        lines.on_progress(
            Progress(best=best, suffices=best is not None, default_suffices=False, only_savings=False, left=left)
        )
    return [json.loads(line) for line in file.getvalue().splitlines()]


def test_each_line_has_the_fields_that_the_manual_lists() -> None:
    for best in (None, outcome(rate=1200.0)):
        for line in written(best):
            assert set(line) == {"type", *LINES[line["type"]]}


def test_one_line_per_phase() -> None:
    assert [line["type"] for line in written()] == [
        "stage", "start", "candidate", "candidate", "outcome", "outcome", "progress",
    ]  # fmt: skip


def test_what_they_say() -> None:
    lines = written(outcome(rate=1200.0))
    assert [line["failure"] for line in lines if line["type"] == "outcome"] == [None, "crashed"]
    assert lines[-1] == {
        "type": "progress", "best": "opencv-w2-p2-b64", "goodput": 0.96, "suffices": True, "default_suffices": False,
        "left_s": 12.5, "at_least": True,
    }  # fmt: skip


def test_a_reader_that_goes_away_ends_nothing() -> None:
    class Gone(io.StringIO):
        def write(self, _: str) -> int:
            raise BrokenPipeError

    lines = JsonLines(Gone())
    for _ in range(2):
        lines.on_outcome(outcome())
