from __future__ import annotations

import io

import pytest
from rich.console import Console

from pipetune.cli import sweep_print
from pipetune.report import sweep_text
from pipetune.report.html import sweep_page
from pipetune.report.line import Kind, Line, headline, texts
from tests.unit.sweeping.test_result import CEILING, DEFAULT, TUNED, sweep_result

LINES = [Line(Kind.CONTEXT, "before"), Line(Kind.HEADLINE, "the answer"), Line(Kind.WARNING, "but")]


def test_the_headline_is_found_by_its_kind() -> None:
    assert headline(LINES) == "the answer"
    assert headline(LINES[2:]) == ""
    assert texts(LINES) == ["before", "the answer", "but"]


def test_other_words_change_neither_colour_nor_place(monkeypatch: pytest.MonkeyPatch) -> None:
    result = sweep_result(CEILING, DEFAULT, TUNED)
    real = sweep_text.conclusion_lines(result)
    reworded = [Line(line.kind, f"word {number}") for number, line in enumerate(real)]
    number = next(number for number, line in enumerate(real) if line.kind is Kind.HEADLINE)

    monkeypatch.setattr(sweep_print, "conclusion_lines", lambda _: reworded)
    monkeypatch.setattr(sweep_page, "conclusion_lines", lambda _: reworded)
    stream = io.StringIO()
    sweep_print.print_summary(Console(file=stream, force_terminal=True, color_system="standard", width=160), result)
    html = sweep_page.sweep_page(result, run_name="run", run_folder="/runs/run", about={}, figures=[], problems=[])

    assert f"\x1b[1mword {number}\x1b[0m" in stream.getvalue()
    assert f"<h1>word {number}</h1>" in html
    assert f">word {number}</p>" not in html
    kinds = [line.kind for line in real if line.kind is not Kind.HEADLINE]
    assert [f'<p class="{kind}">' in html for kind in kinds] == [True] * len(kinds)
