from __future__ import annotations

import io
import time

import pytest
from rich.console import Console

from pipetune.measure.harness import Live
from pipetune.records.sweep import AcceleratorSpec, Failure, Goal, Outcome
from pipetune.report.terminal.progress import Display
from pipetune.report.terminal.progress_text import rounded
from pipetune.sweeping.observer import Event
from pipetune.sweeping.progress import Progress, TimeLeft
from tests.fakes import outcome


class Terminal(io.StringIO):
    """What a terminal was sent."""

    def isatty(self) -> bool:
        return True


EMULATED = AcceleratorSpec(kind="emulated", name="EMULATED 500/s", rate_samples_per_s=500.0)


def display(terminal: bool = False, width: int = 100) -> tuple[Display, io.StringIO]:
    stream = io.StringIO()
    return Display(Console(file=stream, force_terminal=terminal, width=width, height=12)), stream


GOAL = Goal(target=0.9, metric="goodput", effort="normal")


def event(role: str, live: Live, attempt: int = 1) -> Event:
    candidate = outcome("opencv", 2).candidate
    return Event(candidate=candidate, role=role, attempt=attempt, why="another decoder", live=live)


def progress(
    best: Outcome, *, suffices: bool, default_suffices: bool = False, seconds: float = 10.0, at_least: bool = False
) -> Progress:
    left = TimeLeft(seconds=seconds, at_least=at_least)
    return Progress(
        best=best, suffices=suffices, default_suffices=default_suffices, only_savings=default_suffices, left=left
    )


def shown(view: Display) -> str:
    console = Console(width=100, file=io.StringIO(), record=True)
    console.print(view._render())
    return console.export_text()


def test_without_a_terminal_each_outcome_is_one_plain_line() -> None:
    view, stream = display()
    with view:
        view.on_start(EMULATED, GOAL, 9, None)
        view.on_outcome(outcome("opencv", 2, rate=1000.0, ceiling=1250.0))
        view.on_outcome(outcome("dali", 1, failure=Failure(kind="crashed", phase="open", message="[bold]x", hint="y")))
    assert stream.getvalue().splitlines() == [
        "measuring first what EMULATED 500/s can take (its max ingestion rate), then at most 9 candidates",
        "✓ opencv, 2 workers, prefetch 2: 1,000/s ±2.0 %, goodput 80 %, EMULATED util 80 %, data wait 20 %",
        "✗ dali, 1 thread, prefetch 2: crashed: [bold]x",
    ]


@pytest.mark.parametrize(
    ("stream", "environment", "live"),
    [
        (Terminal(), {"TERM": "xterm"}, True),
        (Terminal(), {"TERM": "dumb"}, False),  # rich would draw nothing at all
        (Terminal(), {"TERM": "unknown"}, False),
        (io.StringIO(), {"TERM": "xterm", "FORCE_COLOR": "1"}, False),  # the log of a build
    ],
)
def test_there_is_a_live_view_only_where_it_can_be_drawn(
    stream: io.StringIO, environment: dict[str, str], live: bool
) -> None:
    with Display(Console(file=stream, _environ=environment, width=100, height=12)) as view:
        view.on_outcome(outcome("opencv", 2))
    assert ("\x1b[" in stream.getvalue()) == live
    assert (stream.getvalue().splitlines()[:1] == [view.done[0]]) != live


def test_no_word_between_colons_becomes_a_picture() -> None:
    view, stream = display()
    failure = Failure(kind="crashed", phase="open", message="own:train:make_loader()", hint="y")
    view.on_outcome(outcome("dali", 1, failure=failure))
    assert stream.getvalue().endswith("own:train:make_loader()\n")


def test_the_running_candidate_is_shown_with_its_live_figures() -> None:
    view, _ = display(terminal=True)
    live = Live(phase="timed", samples_per_s=512.4, idle_frac=0.25, data_wait_frac=0.5)
    view.on_event(
        Event(candidate=outcome("opencv", 2).candidate, role="candidate", attempt=2, why="a probe", live=live)
    )
    text = shown(view)
    assert "opencv, 2 workers, prefetch 2 (again): measuring, 512/s, util 75 %, data wait 50 %" in text


def test_the_reason_is_shown_with_the_running_candidate() -> None:
    view, _ = display(terminal=True)
    live = Live(phase="timed", samples_per_s=512.4)
    view.on_event(event("candidate", live))
    assert "why: another decoder" in shown(view)


def test_the_best_so_far_and_the_time_left() -> None:
    view, _ = display(terminal=True)
    view.on_start(EMULATED, GOAL, 4, None)
    assert "left" not in shown(view)
    view.on_outcome(outcome("opencv", 2))
    view.on_progress(progress(outcome("opencv", 2, rate=1000.0), suffices=False, seconds=47.0))
    text = " ".join(view.lines(9))
    assert "best so far: opencv, 2 workers, prefetch 2: 1,000/s ±2.0 %, goodput 80 %, misses the target of 90 %" in text
    assert "1 measured in" in text
    assert "about 45.0 s left" in text
    assert "[-" in text
    view.on_progress(progress(outcome("opencv", 2, rate=1000.0), suffices=False, seconds=200.0, at_least=True))
    assert "at least 3 min 30 s left" in shown(view)


def test_a_budget_ends_it_earlier() -> None:
    view, _ = display(terminal=True)
    view.on_start(EMULATED, GOAL, 4, 30.0)
    view.on_progress(progress(outcome(), suffices=True, seconds=1000.0))
    assert "about 30.0 s left" in shown(view)


def test_a_default_that_suffices_is_said_once() -> None:
    view, stream = display()
    default = outcome("pillow", 0, rate=1250.0, role="baseline")
    with view:
        view.on_start(EMULATED, GOAL, 4, None)
        for _ in range(2):
            view.on_outcome(default)
            view.on_progress(progress(default, suffices=True, default_suffices=True))
    lines = stream.getvalue().splitlines()
    assert [line.strip().split(",")[0] for line in lines if line.startswith("  ")] == [
        "PyTorch's default suffices", "best so far: pillow",
    ]  # fmt: skip
    assert "others are measured only while they may save one core" in stream.getvalue()


def test_no_time_is_left_where_it_is_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last measurement takes longer than was expected."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    view, _ = display(terminal=True)
    view.on_start(EMULATED, GOAL, 4, None)
    view.on_progress(progress(outcome(), suffices=True, seconds=10.0))
    for now[0], said in ((8.6, True), (9.4, False), (30.0, False)):
        assert (" left" in view.lines(9)[-1]) == said


@pytest.mark.parametrize(("seconds", "shown"), [(7.4, 7), (19.6, 20), (47.0, 45), (200.0, 210), (1000.0, 1020)])
def test_times_left_are_rounded(seconds: float, shown: float) -> None:
    assert rounded(seconds) == shown


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
    view.on_event(
        Event(candidate=outcome().candidate, role="ceiling", attempt=1, why="a probe", live=Live(phase="open"))
    )
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


def test_stages_that_begin_again_and_again_are_reported_ever_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    view, stream = display()
    for second in range(600):
        now[0] = float(second)
        view.on_stage(f"starting the script: {second % 7} s", 0, None)
    assert len(stream.getvalue().splitlines()) == 14


def test_no_escape_sequence_of_a_message_is_shown() -> None:
    for terminal in (False, True):
        view, stream = display(terminal=terminal)
        failure = Failure(kind="crashed", phase="open", message="\x1b]0;PWNED\x07\x9b2J", hint="y")
        view.on_outcome(outcome("dali", 1, failure=failure))
        text = shown(view) + stream.getvalue()
        assert "?]0;PWNED??2J" in text
        assert not {"\x07", "\x9b"} & {*text}
        assert "\x1b]" not in text


@pytest.mark.parametrize("width", [40, 60, 80, 100, 140])
def test_the_time_left_is_read_in_a_narrow_terminal_too(width: int) -> None:
    view, _ = display(width=width)
    view.on_start(EMULATED, GOAL, 9, None)
    view.on_progress(progress(outcome("opencv", 2), suffices=False, seconds=130.0))
    line = view.lines(9)[-1]
    assert ", about 2 min" in line
    assert " left" in line
    assert len(line) <= max(width, 48)
    assert ("] " in line) == (width >= 60)
    assert ("Ctrl-C stops" in line) == (width >= 80)
    assert ("keeps what was measured" in line) == (width >= 100)
