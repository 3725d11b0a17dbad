from __future__ import annotations

import sys

import pytest
import typer

from pipetune.cli.watch_find import ask
from pipetune.errors import UsageError
from pipetune.sampler.job.find_jobs import JobGuess

JOBS = [JobGuess(pid=pid, title="train.py", why="computes on GPU 0", gpus=(0,)) for pid in (11, 12)]


def be_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream in (sys.stdin, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True)


def answer(monkeypatch: pytest.MonkeyPatch, *answers: int) -> None:
    left = list(answers)

    def prompt(*_: object, **__: object) -> int:
        if not left:
            raise typer.Abort
        return left.pop(0)

    monkeypatch.setattr(typer, "prompt", prompt)


def test_the_person_chooses_by_number(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    be_a_terminal(monkeypatch)
    answer(monkeypatch, 0, 3, 2)

    assert ask(JOBS).pid == 12
    out, errors = capsys.readouterr()
    assert out == ""
    assert errors.count("choose from 1 to 2") == 2
    assert "  1  11  train.py  (computes on GPU 0)" in errors


def test_giving_up_is_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    be_a_terminal(monkeypatch)
    answer(monkeypatch)

    with pytest.raises(KeyboardInterrupt):
        ask(JOBS)


def test_without_a_terminal_nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False)

    with pytest.raises(UsageError, match="2 jobs could be meant"):
        ask(JOBS)


def test_the_title_of_a_job_is_somebody_else_s_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    be_a_terminal(monkeypatch)
    answer(monkeypatch, 1)
    guess = JobGuess(pid=7, title="tr\x1b]0;PWNED\x07.py", why="has torch loader workers", gpus=())
    assert ask([guess, guess]) is guess
    shown = capsys.readouterr().err
    assert "tr?]0;PWNED?.py" in shown
    assert "\x1b" not in shown
