from __future__ import annotations

import io
import time

import pytest
from rich.console import Console

from pipetune.measure.harness import Live
from pipetune.records.sweep import AcceleratorSpec, Failure
from pipetune.report.terminal.progress import Display
from pipetune.sweeping.observer import Event
from tests.fakes import outcome

EMULATED = AcceleratorSpec(kind="emulated", name="EMULATED 500/s", rate_samples_per_s=500.0)


def display(terminal: bool = False, width: int = 100) -> tuple[Display, io.StringIO]:
    stream = io.StringIO()
    return Display(Console(file=stream, force_terminal=terminal, width=width, height=12)), stream


def shown(view: Display) -> str:
    console = Console(width=100, file=io.StringIO(), record=True)
    console.print(view._render())
    return console.export_text()


def test_without_a_terminal_each_outcome_is_one_plain_line() -> None:
    view, stream = display()
    with view:
        view.on_start(EMULATED, 9, None)
        view.on_outcome(outcome("opencv", 2, rate=1000.0, ceiling=1250.0))
        view.on_outcome(outcome("dali", 1, failure=Failure(kind="crashed", phase="open", message="[bold]x", hint="y")))
    assert stream.getvalue().splitlines() == [
        "measuring first what EMULATED 500/s can take (its max ingestion rate), then at most 9 candidates",
        "✓ opencv, 2 workers, prefetch 2: 1,000/s ±2.0 %, goodput 80 %, EMULATED util 80 %, data wait 20 %",
        "✗ dali, 1 thread, prefetch 2: crashed: [bold]x",
    ]


def test_the_running_candidate_is_shown_with_its_live_figures() -> None:
    view, _ = display(terminal=True)
    live = Live(phase="timed", samples_per_s=512.4, idle_frac=0.25, data_wait_frac=0.5)
    view.on_event(Event(candidate=outcome("opencv", 2).candidate, role="candidate", attempt=2, live=live))
    text = shown(view)
    assert "opencv, 2 workers, prefetch 2 (again): measuring, 512/s, util 75 %, data wait 50 %" in text


def test_time_left_is_an_upper_bound() -> None:
    view, _ = display(terminal=True)
    view.on_start(EMULATED, 4, 300.0)
    assert "left" not in shown(view)
    view.on_outcome(outcome("pillow", 0, role="ceiling"))
    view.on_outcome(outcome("opencv", 2))
    assert "at most 30.0 s left" in shown(view)


def test_old_lines_make_room_for_new_ones() -> None:
    view, _ = display(terminal=True)
    for workers in range(1, 40):
        view.on_outcome(outcome("opencv", workers))
    text = shown(view)
    assert len(text.splitlines()) <= 12
    assert "39 workers" in text


def test_a_stage_is_shown_until_the_first_candidate() -> None:
    view, _ = display(terminal=True)
    view.on_stage("reading headers", 10, 200)
    assert "reading headers: 10 of 200" in shown(view)
    view.on_event(Event(candidate=outcome().candidate, role="ceiling", attempt=1, live=Live(phase="open")))
    assert "reading headers" not in shown(view)
    assert "max ingestion rate: importing, opening" in shown(view)


def test_a_stage_that_takes_long_is_reported_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    view, stream = display()
    for second, done in ((0.5, 1), (1.5, 20), (2.0, 30), (5.0, 90)):
        now[0] = second
        view.on_stage("reading headers", done, None)
    assert stream.getvalue().splitlines() == ["reading headers: 20", "reading headers: 90"]
