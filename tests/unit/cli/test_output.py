from __future__ import annotations

import io
import sys

import pytest
from rich.console import Console

from pipetune.cli.output import result_console, say


class Terminal(io.StringIO):
    """What a terminal was sent."""

    def isatty(self) -> bool:
        return True


def test_a_line_is_printed_as_it_is() -> None:
    stream = io.StringIO()
    say(Console(file=stream, width=20), "own:train:make_loader() [b] :smile: and so on and on")
    assert stream.getvalue() == "own:train:make_loader() [b] :smile: and so on and on\n"


@pytest.mark.parametrize(
    ("stream", "columns", "width"),
    [(io.StringIO(), None, 160), (io.StringIO(), "60", 60), (io.StringIO(), "wide", 160), (Terminal(), "60", 60)],
)
def test_what_has_no_width_gets_the_whole_table(
    stream: io.StringIO, columns: str | None, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    for name, stderr in (("stdout", False), ("stderr", True)):
        monkeypatch.setattr(sys, name, stream)
        assert result_console(stderr=stderr).width == width


def test_a_terminal_has_its_own_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert result_console()._width is None  # rich asks the terminal
